"""Look at torch.compile's caches, and keep them apart by backend and configuration."""

from __future__ import annotations

from dynx.guards._compile import compile
from dynx.guards._hits import count_hits
from dynx.guards._inspect import evict, inspect, pin, reset
from dynx.guards._keyed import keyed
from dynx.guards._profile import profile
from dynx.guards._recompiles import recompiles
from dynx.guards._would import would_recompile

__all__ = ["compile", "count_hits", "evict", "inspect", "keyed", "pin", "profile", "recompiles", "reset", "would_recompile"]
