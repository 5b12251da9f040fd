"""What was compiled, by the names that reports give it: also functions that nothing but their caller can reach."""

from __future__ import annotations

from types import CodeType

from dynx._torch.cache.entries import compiled_codes, with_rests
from dynx._torch.compilation.frame import resumed_at, user_name
from dynx._torch.compilation.wrappers import is_shared
from dynx.guards._cache.entries import record_of
from dynx.guards._cache.target import location_of
from dynx.records import CacheReport


def compiled_functions() -> dict[str, CodeType]:
    """Give the code of every function that torch has versions of, without rests after graph breaks, in order."""
    codes = [each for each in compiled_codes() if resumed_at(each) is None and not is_shared(each)]
    return {user_name(each.co_qualname): each for each in codes}


def inspect_code(code: CodeType) -> CacheReport:
    return CacheReport(location_of(code), tuple(map(record_of, with_rests([code]))))
