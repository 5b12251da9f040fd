"""What is known of an entry of torch's cache."""

from __future__ import annotations

from types import CodeType
from typing import Any, NamedTuple


class RawEntry(NamedTuple):
    """One compiled version of a function, or of a part of one."""

    code: CodeType  # that torch replaced: the function's, or of its rest after a graph break
    compile_id: str
    backend: str
    cache_key: Any  # of a backend that has one
    region: int  # -1 where it is not kept apart
    compiled: CodeType
    guards: Any  # `GuardManagerWrapper`
    is_pinned: bool = False
