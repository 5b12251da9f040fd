"""Read the entries of Dynamo's cache of compiled code.

Torch: `eval_frame._debug_get_cache_entry_list` returns objects that do not keep the C++ entry alive, so dynx does not store
them. It stores the `GuardManagerWrapper` of an entry, whose `cache_entry` torch clears when the entry is removed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import CodeType
from typing import Any

from dynx._torch.cache.entry import RawEntry
from dynx._torch.cache.pinned import pinned_of
from dynx._torch.compilation.backend_key import key_of
from dynx._torch.compilation.frame import backend_name


def entries_of(code: CodeType) -> list[RawEntry]:
    """Return the valid cache entries of a code object in the order in which torch checks them: pinned (`guards.pin`) first."""
    from torch._dynamo.eval_frame import _debug_get_cache_entry_list

    entries = pinned_of(code)
    for cached in _debug_get_cache_entry_list(code):
        guards = cached.guard_manager
        if guards.cache_entry is not None:  # else the entry was invalidated
            region = getattr(cached, "isolate_recompiles_id", -1)
            backend = cached.backend
            name, key = backend_name(backend), key_of(backend)
            entries.append(RawEntry(code, str(cached.compile_id), name, key, region, cached.code, guards))
    return entries


def accepting(code: CodeType, locals: Mapping[str, Any], backend: Any) -> str | None:
    """Return the compile id of an entry that was compiled with `backend` and whose guards hold for a call; None if none does.

    `backend` is the user's object, without torch's wrappers.
    """
    from torch._dynamo.eval_frame import _debug_get_cache_entry_list, innermost_backend

    for cached in _debug_get_cache_entry_list(code):
        if innermost_backend(cached.backend) is backend and cached.guard_manager.check(dict(locals)):
            return str(cached.compile_id)
    return None


def with_resume_functions(codes: list[CodeType]) -> list[RawEntry]:
    """Return the cache entries of code objects and of their resume functions, grouped by code object, the oldest first."""
    unique = {id(part): part for code in codes for part in (code, *resumes_of(code))}
    return [entry for code in unique.values() for entry in sorted(entries_of(code), key=_age)]


def _age(entry: RawEntry) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", entry.compile_id))


def compiled_codes() -> list[CodeType]:
    """Return all code objects that have cache entries. Torch: `convert_frame.input_codes`."""
    from torch._dynamo.convert_frame import input_codes

    return [code for ref in input_codes.seen if (code := ref()) is not None and entries_of(code)]


def entry_of(code: CodeType, guards: Any) -> RawEntry | None:
    """Return the cache entry of a code object that has this `GuardManagerWrapper`; None if it is no longer in the cache."""
    return next((entry for entry in entries_of(code) if entry.guards is guards), None)


def resumes_of(code: CodeType) -> Iterator[CodeType]:
    """Yield the code objects of a function's resume functions, recursively. Torch: `ContinueExecutionCache`."""
    from torch._dynamo.resume_execution import ContinueExecutionCache

    if code in ContinueExecutionCache.cache:
        for resume in tuple(ContinueExecutionCache.cache[code].values()):
            yield resume
            yield from resumes_of(resume)
