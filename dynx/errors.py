"""Every exception dynx raises.

DynxError
├── BadRunFile          a run file that is not one (a damaged one only warns)
├── CaptureError        a graph cannot be captured as a CUDA graph, and or_error was asked for
│   └── CaptureFailed   CUDA, or the emulator, refused what was being captured
├── ComptimeFailed      a callback at compile time asked for something that is not there, or raised
│   ├── CheckFailed     a promised condition is false
│   ├── NoSuchLocal     the traced frame has no such variable (also a KeyError)
│   └── NotConstant     a value is known only at run time (also a NotImplementedError)
├── ProbeFailed         a probe cannot be set where it was asked for
├── StaleEntry          a cache entry is gone that a record of it was used for
├── UnsupportedTorch    a feature needs a hook that the installed torch lacks
├── UsageError          the command line or an argument makes no sense (exit code 2)
└── UnknownRule         no advice rule has this id
"""

from __future__ import annotations

__all__ = [
    "BadRunFile",
    "CaptureError",
    "CaptureFailed",
    "CheckFailed",
    "ComptimeFailed",
    "DynxError",
    "DynxWarning",
    "NoSuchLocal",
    "NotConstant",
    "ProbeFailed",
    "StaleEntry",
    "UnknownRule",
    "UnsupportedTorch",
    "UsageError",
]


class DynxError(Exception):
    """Base of all errors of dynx: says what happened, where, why, and one next step."""


class BadRunFile(DynxError):
    """The file is not a dynx run file at all."""


class CaptureError(DynxError):
    """A graph cannot be captured as a CUDA graph, and was not to be run otherwise."""


class CaptureFailed(CaptureError):
    """CUDA, or the emulator of it, refused something while a graph was being captured."""


class ComptimeFailed(DynxError):
    """A callback at compile time asked for something that is not there, or raised."""


class CheckFailed(ComptimeFailed):
    """A condition that the program promised is false."""


class NoSuchLocal(ComptimeFailed, KeyError):
    """The traced frame has no variable of this name, or torch does not keep it."""

    __str__ = Exception.__str__  # KeyError shows its text as a repr


class NotConstant(ComptimeFailed, NotImplementedError):
    """A value is known only at run time."""


class ProbeFailed(DynxError):
    """A probe cannot be set where it was asked for."""


class UnsupportedTorch(DynxError):
    """A feature needs something of torch that the installed version does not have."""


class UsageError(DynxError):
    """The request makes no sense as written."""


class StaleEntry(DynxError):
    """The cache entry that a record describes is not in torch's cache any more."""


class UnknownRule(DynxError):
    """No advice rule has this id."""


class DynxWarning(UserWarning):
    """dynx could not see or write something; the watched program is not affected."""
