"""Which entries of torch's cache are of a function: torch wraps some in code that all of them share."""

from __future__ import annotations

import inspect
import re
from types import CodeType
from typing import Any, NamedTuple
from weakref import ref

from dynx._torch.cache.entries import with_rests
from dynx._torch.cache.entry import RawEntry
from dynx._torch.cache.guard_tree import tree_of
from dynx._torch.compilation.wrappers import innermost, is_shared, original_module
from dynx._trace.guard_records import node_of
from dynx.guards._cache.target import codes_of, user_code_of

_AN_ID = re.compile(r"\b\d{6,}\b")


class Owner(NamedTuple):
    """A function or module, as its entries know it; keeps nothing alive."""

    codes_kept: tuple[ref[CodeType], ...]
    cls: str | None  # of a module or another object
    user_code: int | None  # id

    @property
    def codes(self) -> list[CodeType]:
        return [code for each in self.codes_kept if (code := each()) is not None]

    def entries(self) -> list[RawEntry]:
        """List its entries and those of its rests after graph breaks, oldest first of each."""
        return [each for each in with_rests(self.codes) if self.has(each.guards, each.code)]

    def has(self, guards: Any, code: CodeType) -> bool:
        """Tell whether an entry of its code is its own, by the guards on what the shared wrapper calls."""
        if not is_shared(code):
            return True
        every = (guard for _, node in node_of(tree_of(guards), code, None).walk() for guard in node.guards)
        mine = [each for each in every if each.source.startswith("fn")]
        types = {each.expected for each in mine if each.source == "fn" and each.kind == "type"}
        if types:
            return self.cls in types
        ids = {int(number) for each in mine if each.kind == "function" for number in _AN_ID.findall(each.text)}
        return not ids or self.user_code in ids


def owner_of(fn: Any) -> Owner:
    """Describe a function, method or module, compiled or not. Raises UsageError for what has no Python code."""
    codes, user_code = codes_of(fn), user_code_of(fn)
    inner = original_module(fn) or inspect.unwrap(innermost(fn))
    cls = None if hasattr(inner, "__code__") else str(type(inner))
    return Owner(tuple(map(ref, codes)), cls, user_code and id(user_code))
