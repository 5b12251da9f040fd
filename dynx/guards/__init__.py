"""Look at torch.compile's caches, and keep them apart by backend and configuration."""

from __future__ import annotations

from dynx.guards._compile import compile
from dynx.guards._keyed import keyed

__all__ = ["compile", "keyed"]
