"""The texts of symbolic values, and when they may change: most are written once, however often they are met.

A text changes when the traced code changes the value, or when torch looks at it for the first time.
"""

from __future__ import annotations

from operator import is_
from typing import Any

from dynx._torch.rendering import attribute_name, is_tensor, manner_of, manner_of_class, show, show_value
from dynx._torch.variables import example_of, is_kind, is_lazy, items_of, may_hold_items, settled
from dynx._trail import Trail

FIXED, TENSOR, OPEN = range(3)  # a text that stays; changes at most when the graph grows; may change at any time

_UNKNOWN: tuple[Any, ...] = ()  # of a value that cannot be compared
_QUICK = frozenset({"constant", "null", "function", "module", "class"})  # sooner written than looked up, and fixed


class ValueTexts:
    """Gives the numbers that a trail has for the texts of values. Keeps values, so it must end with the attempt."""

    __slots__ = ("_known", "_newest", "_number", "_texts")

    def __init__(self, trail: Trail) -> None:
        self._number, self._texts = trail.text, trail.texts
        # by identity, which stands while they are kept: the value, what must not have changed, the text, when it may change
        self._newest: tuple[Any, int] = (None, 0)
        self._known: dict[int, tuple[Any, Any, int, int]] = {}

    def of(self, tx: Any, value: Any) -> tuple[int, int]:
        """Give the text of a value as it is now, and when it may change."""
        cls: Any = type(value)
        manner = manner_of_class(cls)
        if manner in _QUICK:
            return self._number(show_value(value.value) if manner == "constant" else show(tx, value)), FIXED
        if manner == "attribute":
            return self._of_attribute(tx, value)
        if manner == "cell":
            return self._number(show(tx, value)), OPEN
        if manner == "lazy":
            inner = settled(value)
            if inner is not value:
                return self.of(tx, inner)
        elif value is self._newest[0]:
            return self._newest[1], FIXED
        known = self._known.get(id(value))
        if known is not None and _is_as(value, known):
            return known[2:]
        text, kind = self._number(show(tx, value)), kind_of(value)
        if kind == FIXED and value.source is None:  # made by the traced code: met again at once, for an attribute, or never
            self._newest = value, text
        elif kind == FIXED or manner == "lazy":
            self._known[id(value)] = value, None, text, kind
        elif kind == TENSOR:
            self._known[id(value)] = value, _facts_of(value), text, kind
        elif kind == OPEN:
            members = _members_of(value)
            facts = [each for each in map(_facts_of_member, members) if each is not None]
            if _UNKNOWN not in facts:
                self._known[id(value)] = value, (members, facts), text, kind
        return text, kind

    def _of_attribute(self, tx: Any, value: Any) -> tuple[int, int]:
        """Torch has a variable for a method that is about to be called: what it is a method of, and its name."""
        obj = value.obj
        if manner_of(obj) or may_hold_items(obj):  # the renderer shows less of containers here
            return self._number(show(tx, value)), kind_of(obj)
        text, kind = self.of(tx, obj)
        return self._number(f"{self._texts[text]}.{attribute_name(value)}"), kind


def kind_of(value: Any) -> int:
    """Say when the text of a value may change."""
    manner = manner_of(value)
    if manner in _QUICK:
        return FIXED
    if manner == "lazy":
        inner = settled(value)
        return OPEN if inner is value else kind_of(inner)
    if manner == "cell":
        return OPEN
    if manner == "attribute":
        return kind_of(value.obj)
    if may_hold_items(value):
        items = items_of(value)
        if is_kind(value, "TupleVariable"):  # itself it never changes
            return max(map(kind_of, items or ()), default=FIXED)
        if items is not None:
            return OPEN
    return FIXED if example_of(value) is None else TENSOR


def _is_as(value: Any, known: tuple[Any, Any, int, int]) -> bool:
    """Tell whether a text that is known of a value still holds."""
    _, before, _, kind = known
    if before is None:
        return kind != TENSOR
    if kind == TENSOR:
        return bool(before == _facts_of(value))
    members, facts = before
    now = _members_of(value)
    if len(members) != len(now) or not all(map(is_, members, now)):
        return False
    return not facts or facts == [each for each in map(_facts_of_member, now) if each is not None]


def _facts_of_member(value: Any) -> tuple[Any, ...] | None:
    """Give what can be told of a member of a container that stays the same; None where nothing of it can change."""
    kind = FIXED if is_lazy(value) else kind_of(value)
    if kind == FIXED:
        return None
    return (_facts_of(value) or _UNKNOWN) if kind == TENSOR and not may_hold_items(value) else _UNKNOWN


def _facts_of(value: Any) -> tuple[Any, ...] | None:
    """Give what the traced code can change of a tensor; None where comparing symbolic sizes would add guards."""
    example: Any = example_of(value)
    if not is_tensor(example):
        return None
    shape = example.shape
    return (shape, example.dtype, example.requires_grad) if all(type(size) is int for size in shape) else None


def _members_of(value: Any) -> list[Any]:
    """List what a container holds; what torch looks at becomes another member."""
    items = items_of(value)
    members = [*items, *items.values()] if isinstance(items, dict) else items or ()
    return [settled(each) if is_lazy(each) else each for each in members]
