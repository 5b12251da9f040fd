"""The record that describes one entry of Dynamo's cache of compiled code."""

from __future__ import annotations

from types import CodeType
from typing import Any, NamedTuple


class RawEntry(NamedTuple):
    """One entry of Dynamo's cache: a compiled version of a function or resume function, with its guards and backend."""

    code: CodeType  # the code of the function or resume function before compilation
    compile_id: str
    backend: str  # its name
    cache_key: Any  # the key by which `dynx.compile` compares backends; None for other backends
    region: int  # the id of its `isolate_recompiles` region, -1 for none
    compiled: CodeType  # the code that torch runs instead
    guards: Any  # `GuardManagerWrapper`
    is_pinned: bool = False
