"""Notify the user that a graph or function runs uncaptured: with a warning, or with `or_error` by raising an error."""

from __future__ import annotations

import warnings

from dynx._reading.user_location import user_stacklevel
from dynx.cudagraphs._config import Config
from dynx.errors import CaptureError, DynxWarning
from dynx.records.cudagraphs import Skip


def why_uncaptured(name: str, skip: Skip) -> str:
    """Return the text that says why something runs uncaptured, with the line of the operation and the advice."""
    where = f"\n  at {skip.location}" if skip.location is not None else ""
    return f"{name} runs uncaptured: {skip.reason}{where}\n  {skip.advice}"


def warn_or_raise(text: str, config: Config) -> None:
    """Warn at the user's line, or raise CaptureError where `config.or_error` is set."""
    if config.or_error:
        raise CaptureError(f"{text}\n  leave out or_error to run it uncaptured")
    notify(text)


def notify(text: str) -> None:
    """Warn with a DynxWarning at the user's line."""
    warnings.warn(text, DynxWarning, stacklevel=user_stacklevel())
