"""Torch's cache of compiled code, entry by entry.

Torch: `eval_frame._debug_get_cache_entry_list` gives entries that do not keep what they stand for alive, so none is kept
here: what is kept is the `GuardManagerWrapper` of an entry, of which torch clears `cache_entry` when the entry goes. Alike in
2.11, 2.13 and 2.15.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import CodeType
from typing import Any, NamedTuple

from dynx._torch.compiling import key_of
from dynx._torch.frames import backend_name


class RawEntry(NamedTuple):
    """One compiled version of a function, or of a part of one."""

    code: CodeType  # that torch replaced: the function's, or of its rest after a graph break
    compile_id: str
    backend: str
    cache_key: Any  # of a backend that has one
    region: int  # -1 where it is not kept apart
    compiled: CodeType
    guards: Any  # `GuardManagerWrapper`


def entries_of(code: CodeType) -> list[RawEntry]:
    """List the entries of a code object in the order in which torch asks them; without those that are of no use any more."""
    from torch._dynamo.eval_frame import _debug_get_cache_entry_list

    found = []
    for each in _debug_get_cache_entry_list(code):
        guards = each.guard_manager
        if guards.cache_entry is not None:  # else the entry was invalidated
            region = getattr(each, "isolate_recompiles_id", -1)
            backend = each.backend
            found.append(
                RawEntry(code, str(each.compile_id), backend_name(backend), key_of(backend), region, each.code, guards)
            )
    return found


def is_there(guards: Any) -> bool:
    """Tell whether the entry of these guards is still in the cache."""
    return guards.cache_entry is not None


def resumes_of(code: CodeType) -> Iterator[CodeType]:
    """Give the code of the rests of a function after its graph breaks, and of theirs. Torch: `ContinueExecutionCache`."""
    from torch._dynamo.resume_execution import ContinueExecutionCache

    if code in ContinueExecutionCache.cache:
        for each in tuple(ContinueExecutionCache.cache[code].values()):
            yield each
            yield from resumes_of(each)


def invalidate(guards: Any, why: str) -> None:
    """Take an entry out of use; torch goes on counting it towards the limit until the function is reset."""
    from torch._dynamo.guards import DeletedGuardManagerWrapper

    guards.extra_state.invalidate(guards.cache_entry, DeletedGuardManagerWrapper(why))


def reset(code: CodeType) -> None:
    """Forget what was compiled for a code object, and that it is not to be compiled. Torch: `reset_code`."""
    from torch._dynamo.eval_frame import reset_code

    reset_code(code)
