"""Identify a function with a closure equally, in torch's PGO profile in every process, so that saved sizes are found.

Torch: `pgo.CodeId.make(code, closure)` of 2.13 and 2.15 calls `hash` on the code objects of the functions in the closure, with
a result that differs from process to process. torch 2.11 leaves the closure out, so nothing is changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import fields, replace
from types import CellType, CodeType
from typing import Any

from dynx._bytecode.digest import code_digest
from dynx._torch import hooks
from dynx._torch.capabilities import hook_point, require
from dynx.records.profile import portable_closure


def stabilize() -> hooks.Wrapping | None:
    """Make torch's hash of a closure the same in every process until the handle is removed; None if torch has no such hash."""
    require("code_id")
    return hooks.wrap(hook_point("code_id"), _make) if hashes_closures() else None


def hashes_closures() -> bool:
    """Return whether the closure is part of a function's identity in this torch."""
    from torch._dynamo import pgo

    return "closure_hash" in {field.name for field in fields(pgo.CodeId)}


def _make(original: Callable[..., Any]) -> Callable[..., Any]:
    def make(code: CodeType, closure: tuple[CellType, ...] | None = None) -> Any:
        code_id = original(code, None)
        return replace(code_id, closure_hash=closure_hash(closure)) if closure else code_id

    return make


def closure_hash(closure: tuple[CellType, ...]) -> int:
    """Return a hash of the functions in the cells of a closure; of other cells only the position counts, as in torch."""
    digest = hashlib.blake2b(digest_size=8)
    for cell in closure:
        code = _code_in(cell)
        digest.update(b"-" if code is None else code_digest(code))
    return portable_closure(digest.digest())


def _code_in(cell: CellType) -> CodeType | None:
    try:
        content = cell.cell_contents
        code = getattr(content, "__code__", None) if callable(content) else None  # not `__getattr__` of an arbitrary object
    except Exception:  # noqa: BLE001 - the cell is empty; or the `__getattr__` of a callable may raise anything
        return None
    return code if isinstance(code, CodeType) else None
