"""How it is said that something runs uncaptured."""

from __future__ import annotations

import warnings

from dynx._trace.user_location import levels_to_the_user
from dynx.cudagraphs._config import Config
from dynx.errors import CaptureError, DynxWarning


def tell(text: str, config: Config) -> None:
    """Warn at the user's line, or raise CaptureError where the configuration asks for that."""
    if config.or_error:
        raise CaptureError(f"{text}\n  leave out or_error to run it so")
    warnings.warn(text, DynxWarning, stacklevel=levels_to_the_user())
