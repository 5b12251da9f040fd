"""Torch's cache of compiled code, entry by entry.

Torch: `eval_frame._debug_get_cache_entry_list` gives entries that do not keep what they stand for alive, so none is kept
here: what is kept is the `GuardManagerWrapper` of an entry, of which torch clears `cache_entry` when the entry goes. Alike in
2.11, 2.13 and 2.15.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import CodeType
from typing import Any

from dynx._torch.cache.entry import RawEntry
from dynx._torch.cache.pinned import pinned_of
from dynx._torch.compilation.backend_key import key_of
from dynx._torch.compilation.frame import backend_name


def entries_of(code: CodeType) -> list[RawEntry]:
    """List the entries of a code object in the order in which torch asks them; without those that are of no use any more."""
    from torch._dynamo.eval_frame import _debug_get_cache_entry_list

    found = pinned_of(code)
    for each in _debug_get_cache_entry_list(code):
        guards = each.guard_manager
        if guards.cache_entry is not None:  # else the entry was invalidated
            region = getattr(each, "isolate_recompiles_id", -1)
            backend = each.backend
            found.append(
                RawEntry(code, str(each.compile_id), backend_name(backend), key_of(backend), region, each.code, guards)
            )
    return found


def with_rests(codes: list[CodeType]) -> list[RawEntry]:
    """List the entries of code objects and of their rests after graph breaks, oldest first of each."""
    every = {id(one): one for code in codes for one in (code, *resumes_of(code))}
    return [each for code in every.values() for each in sorted(entries_of(code), key=_age)]


def _age(entry: RawEntry) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", entry.compile_id))


def guards_of_result(result: Any) -> Any | None:
    """Give the guards of what `_compile` just compiled, before it is in the cache; None where nothing was."""
    compiled = getattr(result, "guarded_code", None)
    return None if compiled is None else compiled.guard_manager


def compiled_codes() -> list[CodeType]:
    """List the code objects that torch has entries of. Torch: `convert_frame.input_codes`."""
    from torch._dynamo.convert_frame import input_codes

    return [code for each in input_codes.seen if (code := each()) is not None and entries_of(code)]


def entry_of(code: CodeType, guards: Any) -> RawEntry | None:
    """Find the entry of these guards; None when it is not in the cache any more."""
    return next((each for each in entries_of(code) if each.guards is guards), None)


def resumes_of(code: CodeType) -> Iterator[CodeType]:
    """Give the code of the rests of a function after its graph breaks, and of theirs. Torch: `ContinueExecutionCache`."""
    from torch._dynamo.resume_execution import ContinueExecutionCache

    if code in ContinueExecutionCache.cache:
        for each in tuple(ContinueExecutionCache.cache[code].values()):
            yield each
            yield from resumes_of(each)
