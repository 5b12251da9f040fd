"""Look at torch.compile's caches, and keep them apart by backend and configuration."""

from __future__ import annotations

from dynx.guards._cache.hits import count_hits
from dynx.guards._cache.inspect import evict, inspect, pin, reset
from dynx.guards._cache.recompiles import recompiles
from dynx.guards._cache.would_recompile import would_recompile
from dynx.guards._compile.compile import compile
from dynx.guards._compile.keyed_backend import keyed
from dynx.guards._cost.profile import profile

__all__ = ["compile", "count_hits", "evict", "inspect", "keyed", "pin", "profile", "recompiles", "reset", "would_recompile"]
