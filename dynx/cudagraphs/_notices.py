"""Notify the user that a graph or function runs uncaptured: with a warning, or with `or_error` by raising an error."""

from __future__ import annotations

import warnings

from dynx._reading.user_location import user_stacklevel
from dynx.cudagraphs._config import Config
from dynx.errors import CaptureError, DynxWarning
from dynx.records.cudagraphs import Skip


def why_uncaptured(name: str, skip: Skip) -> str:
    """Return a message that says why a graph or function runs uncaptured, with the line of the operation and advice."""
    where = f"\n  at {skip.location}" if skip.location is not None else ""
    return f"{name} runs uncaptured: {skip.reason}{where}\n  {skip.advice}"


def warn_or_raise(problem: str, config: Config) -> None:
    """Raise CaptureError with `problem` if `config.or_error` is set, else warn with it at the line of the user's code."""
    if config.or_error:
        raise CaptureError(f"{problem}\n  without or_error, this is only a warning")
    notify(problem)


def notify(text: str) -> None:
    """Issue a DynxWarning at the line of the user's code that is running."""
    warnings.warn(text, DynxWarning, stacklevel=user_stacklevel())
