"""Find compiled functions by the qualified names in reports, including nested functions (`main.<locals>.step`)."""

from __future__ import annotations

from types import CodeType

from dynx._torch.cache.entries import compiled_codes, with_resume_functions
from dynx._torch.compilation.frame import resumed_at, user_name
from dynx._torch.compilation.wrappers import is_shared
from dynx.guards._cache.entries import record_of
from dynx.guards._cache.target import location_of
from dynx.records import CacheReport


def compiled_functions() -> dict[str, CodeType]:
    """Return the code object of every function with cache entries, by qualified name, in the order of compilation.

    Resume functions and torch's shared wrapper are left out.
    """
    codes = [code for code in compiled_codes() if resumed_at(code) is None and not is_shared(code)]
    return {user_name(code.co_qualname): code for code in codes}


def inspect_code(code: CodeType) -> CacheReport:
    """List the cache entries of a code object and of its resume functions."""
    return CacheReport(location_of(code), tuple(map(record_of, with_resume_functions([code]))))
