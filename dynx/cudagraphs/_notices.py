"""Notify the user that a graph or function runs uncaptured: by a warning, or with `or_error` by an error."""

from __future__ import annotations

import warnings

from dynx._trace.user_location import user_stacklevel
from dynx.cudagraphs._config import Config
from dynx.errors import CaptureError, DynxWarning


def warn_or_raise(text: str, config: Config) -> None:
    """Warn at the user's line, or raise CaptureError where `config.or_error` is set."""
    if config.or_error:
        raise CaptureError(f"{text}\n  leave out or_error to run it uncaptured")
    warnings.warn(text, DynxWarning, stacklevel=user_stacklevel())
