"""Remove entries from Dynamo's cache of compiled code while no other thread reads it."""

from __future__ import annotations

from collections.abc import Iterable
from types import CodeType
from typing import Any

from dynx._torch.cache.quiescence import when_quiet
from dynx._torch.capabilities import require


def invalidate(guards: Any, reason: str, operation: str = "guards.evict") -> None:
    """Invalidate the cache entry with this `GuardManagerWrapper`; until `reset`, it still counts towards the recompile limit.

    `reason` is the text that torch reports for the entry instead of a failed guard; `operation` names the caller's operation in
    error messages.
    """
    require("deleted_guards", "compile_lock")
    from torch._dynamo.guards import DeletedGuardManagerWrapper

    def remove_entry() -> None:
        if guards.cache_entry is not None:
            guards.extra_state.invalidate(guards.cache_entry, DeletedGuardManagerWrapper(reason))

    when_quiet(remove_entry, operation)


def reset(codes: Iterable[CodeType], operation: str = "guards.reset") -> None:
    """Remove all cache entries of code objects, and torch's decisions to skip their frames. Torch: `reset_code`.

    `operation` names the caller's operation in error messages.
    """
    require("reset_code", "compile_lock")
    from torch._dynamo.eval_frame import reset_code

    def reset_all() -> None:
        for code in targets:
            reset_code(code)

    targets = list(codes)
    when_quiet(reset_all, operation)
