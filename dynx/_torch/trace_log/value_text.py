"""Cache the texts of symbolic variables until they may change.

A text changes when the traced code mutates the value, or when torch realizes it, or a variable in it, for the first time.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import is_
from typing import Any

from dynx._bytecode.trail import Trail
from dynx._torch.tracing.render import PLAIN, attribute_name, is_tensor, manner_of, manner_of_class, show
from dynx._torch.tracing.variables import example_of, is_kind, is_lazy, items_of, may_hold_items, settled

# what may change a text: nothing; an operation on a tensor; also a mutation of a Python value; also torch realizing a variable
FIXED, TENSOR, ITEMS, OPEN = range(4)
NEVER = 4  # a level above all of these

Check = Callable[[], bool]  # returns whether a text is unchanged


class ValueTexts:
    """A cache of the texts of symbolic variables, as numbers of texts in a trail; must not outlive the tracing attempt."""

    __slots__ = ("_cached", "_newest", "_number", "_texts")

    def __init__(self, trail: Trail) -> None:
        self._number, self._texts = trail.text, trail.texts
        # by id(), valid while the value is referenced: the value, a check if its text may change, the text, its kind
        self._newest: tuple[Any, int] = (None, 0)
        self._cached: dict[int, tuple[Any, Check | None, int, int]] = {}

    def of(self, tx: Any, value: Any, depth: int = 2) -> tuple[int, int]:
        """Return the trail's number of a variable's text, with `depth` levels of containers, and what may change the text."""
        cls: Any = type(value)
        manner = manner_of_class(cls)
        plain = PLAIN.get(manner)
        if plain is not None:  # faster to write than to look up
            return self._number(plain(value)), FIXED
        if manner == "attribute":  # a bound method that is about to be called
            obj = settled(value.obj)
            text, kind = self.of(tx, obj, 1 if may_hold_items(obj) else 2)
            return self._number(f"{self._texts[text]}.{attribute_name(value)}"), kind
        if manner == "cell":
            return self._number(show(tx, value)), OPEN
        if manner == "lazy":
            if value.is_realized():
                return self.of(tx, value.unwrap(), depth)
        elif value is self._newest[0]:
            return self._newest[1], FIXED
        key = id(value) if depth == 2 else -id(value)
        cached = self._cached.get(key)
        if cached is not None and (cached[1] is None or cached[1]()):
            return cached[2:]
        text, kind = self._number(show(tx, value, depth)), kind_of(value, depth)
        if kind == FIXED and value.source is None and depth == 2:  # created by the traced code: read again at once or never
            self._newest = value, text
        elif kind == FIXED or manner == "lazy":
            self._cached[key] = value, None, text, kind
        else:
            check = _items_check(value) if may_hold_items(value) else _tensor_check(value)
            if check is not None:
                self._cached[key] = value, check, text, kind
        return text, kind


def kind_of(value: Any, depth: int = 2) -> int:
    """Return what may change a variable's text: FIXED, TENSOR, ITEMS or OPEN. The text has `depth` levels of containers."""
    manner = manner_of(value)
    if manner in PLAIN:
        return FIXED
    if manner == "lazy":
        inner = settled(value)
        return OPEN if inner is value else kind_of(inner, depth)
    if manner == "cell":
        return OPEN
    if manner == "attribute":
        return kind_of(value.obj, depth)
    if may_hold_items(value):
        items = items_of(value)
        container = FIXED if is_kind(value, "TupleVariable") else ITEMS
        if items is not None:
            members = _members_of(value) if depth > 0 else ()
            return max(container, max((kind_of(member, depth - 1) for member in members), default=FIXED))
    return FIXED if example_of(value) is None else TENSOR


def _tensor_check(value: Any) -> Check | None:
    """Return a check that a tensor's metadata is unchanged; None if comparing its symbolic sizes would add guards."""
    before = _facts_of(value)
    return None if before is None else lambda: before == _facts_of(value)


def _facts_of(value: Any) -> tuple[Any, ...] | None:
    example: Any = example_of(value)
    if not is_tensor(example) or example._has_symbolic_sizes_strides:
        return None
    return example.shape, example.dtype, example.requires_grad


def _items_check(value: Any) -> Check | None:
    """Return a check that a container's members are unchanged; None if the text of members other than tensors may change.

    The text of a lazy member changes when torch realizes it.
    """
    members = _members_of(value)
    settled_members = [settled(member) for member in members]
    unrealized = [member for member in settled_members if is_lazy(member)]
    checks = []
    for member in settled_members:
        kind = FIXED if is_lazy(member) else kind_of(member)
        check = _tensor_check(member) if kind == TENSOR and not may_hold_items(member) else None
        if check is not None:
            checks.append(check)
        elif kind != FIXED:
            return None

    def is_unchanged() -> bool:
        now = _members_of(value)
        return (
            len(now) == len(members)
            and all(map(is_, now, members))
            and not any(member.is_realized() for member in unrealized)
            and all(check() for check in checks)
        )

    return is_unchanged


def _members_of(value: Any) -> list[Any]:
    items = items_of(value)
    return [*items, *items.values()] if isinstance(items, dict) else [*(items or ())]
