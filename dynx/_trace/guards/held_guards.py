"""Explain a recompile in which no guard fails: with guard collectives, all ranks recompile or none does."""

from __future__ import annotations

from dynx._torch.cache.entries import accepting
from dynx._torch.compilation.frame import CompileCall
from dynx.records import Location, Reason


def without_failed_guard(call: CompileCall, call_site: Location | None) -> Reason | None:
    """Return a reason if the process is one of several ranks, and a cache entry accepts the call; else None."""
    from torch import distributed

    if not distributed.is_available() or not distributed.is_initialized() or distributed.get_world_size() < 2:
        return None
    compile_id = accepting(call.code, call.locals, call.backend_object)
    if compile_id is None:
        return None
    return Reason("held", "guards", "hold", f"one of {distributed.get_world_size()} ranks", call_site, against=compile_id)
