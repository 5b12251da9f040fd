"""The record that describes one entry of Dynamo's cache of compiled code."""

from __future__ import annotations

from types import CodeType
from typing import Any, NamedTuple


class RawEntry(NamedTuple):
    """One entry of Dynamo's cache: a compiled version of a function or resume function, with its guards and backend."""

    code: CodeType  # the original code, of the function or of a resume function
    compile_id: str
    backend: str
    cache_key: Any  # of a keyed backend, else None
    region: int  # -1 for an entry without a region
    compiled: CodeType  # the code that torch runs instead
    guards: Any  # `GuardManagerWrapper`
    is_pinned: bool = False
