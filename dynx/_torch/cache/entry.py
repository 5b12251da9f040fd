"""The record of an entry of torch's cache."""

from __future__ import annotations

from types import CodeType
from typing import Any, NamedTuple


class RawEntry(NamedTuple):
    """One compiled version of a function or resume function."""

    code: CodeType  # the original code, of the function or of a resume function
    compile_id: str
    backend: str
    cache_key: Any  # of a keyed backend, else None
    region: int  # -1 for an entry without a region
    compiled: CodeType  # the code that torch runs instead
    guards: Any  # `GuardManagerWrapper`
    is_pinned: bool = False
