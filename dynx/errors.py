"""Every exception that dynx raises.

DynxError
├── BadRunFile          the file is not a dynx run file
├── CaptureError        a graph cannot be captured as a CUDA graph, with or_error=True
│   └── CaptureFailed   the capture itself failed
├── ComptimeFailed      a callback that runs while Dynamo traces failed
│   ├── CheckFailed     a condition of ctx.check or ctx.assume is false
│   ├── NoSuchLocal     the traced frame has no such local variable (also a KeyError)
│   └── NotConstant     a value is not a compile-time constant (also a NotImplementedError)
├── ProbeFailed         a probe cannot be placed at a line or function
├── StaleEntry          a cache entry was evicted, or torch was reset
├── UnsupportedTorch    the installed torch lacks a private name that a feature needs
├── UsageError          an invalid argument or command line (exit code 2)
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
    """Base class of all errors of dynx.

    The first line of the message says what happened, where and why; an indented second line says what to do next.
    """


class BadRunFile(DynxError):
    """Raised when a run is loaded from a file that is empty or has no header of a dynx run.

    A run file that is damaged or truncated behind its header is loaded as far as possible, with a `DynxWarning`.
    """


class CaptureError(DynxError):
    """Raised with `or_error=True` when a graph cannot be captured as a CUDA graph and would otherwise run uncaptured.

    Also raised with `on_limit="error"` when a graph needs more than `max_recordings` recordings.
    """


class CaptureFailed(CaptureError):
    """Raised when a capture was started and CUDA, or the emulator, rejected an operation.

    Typical causes: a synchronization with the device, a read of a tensor's value, a stream that was not joined, or a tensor on
    the CPU that a replay could not update.
    """


class ComptimeFailed(DynxError):
    """Raised out of the compiled call when a comptime callback or a probe raises, or misuses its context.

    For example: a context used after its callback has returned, a frame that does not exist, or a condition that is no
    comparison of symbolic numbers.
    """


class CheckFailed(ComptimeFailed):
    """Raised when the condition of `ctx.check` or `ctx.assume` is known to be false while Dynamo traces."""


class NoSuchLocal(ComptimeFailed, KeyError):
    """Raised by `ctx.local` when the traced frame has no local variable of this name.

    Dynamo also drops a variable that the rest of the frame does not read.
    """

    __str__ = Exception.__str__  # KeyError shows its text as a repr


class NotConstant(ComptimeFailed, NotImplementedError):
    """Raised when a Python value is requested of a variable that is not constant while Dynamo traces, such as a tensor."""


class ProbeFailed(DynxError):
    """Raised when a probe cannot be placed.

    Typical causes: the line has no code, the file or function does not exist, or Dynamo never traces the function (it is
    disabled, skipped or written in C).
    """


class UnsupportedTorch(DynxError):
    """Raised when a feature needs a private name of torch that the installed version lacks; `dynx doctor` lists them."""


class UsageError(DynxError):
    """Raised when an argument of a function or of the command line is invalid; the command line then exits with code 2."""


class StaleEntry(DynxError):
    """Raised when a record of a cache entry is used after the entry was evicted or torch was reset."""


class UnknownRule(DynxError):
    """Raised when an advice rule is requested by an id that does not exist, such as DX999."""


class DynxWarning(UserWarning):
    """Category of all warnings of dynx: for example, dynx could not observe or write something. The program is not affected."""
