"""Remove entries from torch's cache of compiled code, while no other thread reads it."""

from __future__ import annotations

from collections.abc import Iterable
from types import CodeType
from typing import Any

from dynx._torch.cache.quiescence import when_quiet
from dynx._torch.capabilities import require


def invalidate(guards: Any, why: str, what: str = "guards.evict") -> None:
    """Take an entry out of use; torch goes on counting it towards the limit until the function is reset."""
    require("deleted_guards", "compile_lock")
    from torch._dynamo.guards import DeletedGuardManagerWrapper

    def take_out() -> None:
        if guards.cache_entry is not None:
            guards.extra_state.invalidate(guards.cache_entry, DeletedGuardManagerWrapper(why))

    when_quiet(take_out, what)


def reset(codes: Iterable[CodeType], what: str = "guards.reset") -> None:
    """Forget what was compiled for code objects, and that they are not to be compiled. Torch: `reset_code`."""
    require("reset_code", "compile_lock")
    from torch._dynamo.eval_frame import reset_code

    def forget() -> None:
        for code in each_code:
            reset_code(code)

    each_code = list(codes)
    when_quiet(forget, what)
