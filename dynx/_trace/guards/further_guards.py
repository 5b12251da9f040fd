"""Find the other guards that fail in a call that recompiles: torch stops at the first one of each cache entry.

A change of the value behind the first failed guard does not save the recompile if another guard fails too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType
from typing import Any

from dynx._bytecode.safe_read import UNKNOWN, resolve_once
from dynx._torch.cache.entries import entries_of
from dynx._torch.cache.guard_tree import leaf_holds, tree_of
from dynx._trace.guards.requests import short_source
from dynx.records import Reason

_MOST_NODES = 2000  # reading all takes longer than it is worth for an entry of a large model
_KINDS = ("value", "none", "object", "function", "keys")  # a size, or a property of a tensor, has advice of its own


def further_reasons(
    code: CodeType, first: Reason, locals: Mapping[str, Any], globals: Mapping[str, Any], explained: Callable[[str], Reason]
) -> tuple[Reason, ...]:
    """Return the other failed guards of the entry of `first`, on values that do not contain its value, nor are part of it.

    `explained` makes a reason of the text of a guard, as torch writes it in its messages.
    """
    entry = next((entry for entry in entries_of(code) if entry.compile_id == first.against), None)
    nodes = list(tree_of(entry.guards).walk()) if entry is not None else []
    if len(nodes) > _MOST_NODES or first.other_instance is not None:
        return ()
    found: list[Reason] = []
    for text in _failed(nodes, locals, globals):
        reason = explained(f"{first.against}: {short_source(text)}")
        is_known = reason.kind in _KINDS and None not in (reason.expected, reason.got) and reason.expected != reason.got
        if is_known and not any(_is_related(reason, other) for other in (first, *found)):
            found.append(reason)
    return tuple(found)


def _failed(nodes: Sequence[Any], locals: Mapping[str, Any], globals: Mapping[str, Any]) -> Iterator[str]:
    known: dict[str, Any] = {}
    for node in nodes:
        value = resolve_once(node.source, locals, globals, known) if node.source else UNKNOWN
        if value is not UNKNOWN:
            for leaf in node.manager.get_leaf_guards():
                if not leaf_holds(leaf, value):
                    yield from leaf.verbose_code_parts()[:1]


def _is_related(reason: Reason, other: Reason) -> bool:
    """Return whether a value contains the other, or is the same attribute of another object, with the same change."""
    if (_name(reason), reason.expected, reason.got) == (_name(other), other.expected, other.got):
        return True  # such as `training` of each module
    return _contains(reason.source, other.source) or _contains(other.source, reason.source)


def _name(reason: Reason) -> str:
    return reason.source.rpartition(".")[2]


def _contains(source: str, other: str) -> bool:
    return bool(re.search(rf"(?<!\w){re.escape(other)}(?!\w)", source))
