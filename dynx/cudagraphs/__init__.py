"""CUDA graphs of what torch.compile compiles."""

from __future__ import annotations

from dynx.cudagraphs._backend import backend
from dynx.cudagraphs._config import Config
from dynx.cudagraphs._runner import close_all
from dynx.cudagraphs._stats import forget, stats

__all__ = ["Config", "backend", "reset", "stats"]


def reset() -> None:
    """Give back the memory of all recordings and count anew; compiled functions record again when they are called."""
    close_all()
    forget()
