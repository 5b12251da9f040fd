"""Every exception dynx raises.

DynxError
├── BadRunFile          a run file that is not one (a damaged one only warns)
├── UnsupportedTorch    a feature needs a hook that the installed torch lacks
├── UsageError          the command line or an argument makes no sense (exit code 2)
└── UnknownRule         no advice rule has this id
"""

from __future__ import annotations

__all__ = ["BadRunFile", "DynxError", "DynxWarning", "UnknownRule", "UnsupportedTorch", "UsageError"]


class DynxError(Exception):
    """Base of all errors of dynx: says what happened, where, why, and one next step."""


class BadRunFile(DynxError):
    """The file is not a dynx run file at all."""


class UnsupportedTorch(DynxError):
    """A feature needs something of torch that the installed version does not have."""


class UsageError(DynxError):
    """The request makes no sense as written."""


class UnknownRule(DynxError):
    """No advice rule has this id."""


class DynxWarning(UserWarning):
    """dynx could not see or write something; the watched program is not affected."""
