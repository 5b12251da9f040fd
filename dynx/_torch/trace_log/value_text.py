"""The texts of symbolic values, and when they may change: most are written once, however often they are met.

A text changes when the traced code changes the value, or when torch looks at it, or at what it holds, for the first time.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import is_
from typing import Any

from dynx._bytecode.trail import Trail
from dynx._torch.tracing.render import PLAIN, attribute_name, is_tensor, manner_of, manner_of_class, show
from dynx._torch.tracing.variables import example_of, is_kind, is_lazy, items_of, may_hold_items, settled

# how easily a text changes: not at all; when an operation changes a tensor; when code changes a Python value; when torch looks
FIXED, TENSOR, ITEMS, OPEN = range(4)
NEVER = 4  # above all of these

Check = Callable[[], bool]  # tells whether a text still holds


class ValueTexts:
    """Gives the numbers that a trail has for the texts of values. Keeps values, so it must end with the attempt."""

    __slots__ = ("_known", "_newest", "_number", "_texts")

    def __init__(self, trail: Trail) -> None:
        self._number, self._texts = trail.text, trail.texts
        # by identity, which stands while they are kept: the value, a check where its text may change, the text, how easily
        self._newest: tuple[Any, int] = (None, 0)
        self._known: dict[int, tuple[Any, Check | None, int, int]] = {}

    def of(self, tx: Any, value: Any, depth: int = 2) -> tuple[int, int]:
        """Give the text of a value as it is now, and how easily that changes; containers are shown to `depth` levels."""
        cls: Any = type(value)
        manner = manner_of_class(cls)
        plain = PLAIN.get(manner)
        if plain is not None:  # sooner written than looked up
            return self._number(plain(value)), FIXED
        if manner == "attribute":  # torch has a variable for a method that is about to be called
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
        known = self._known.get(key)
        if known is not None and (known[1] is None or known[1]()):
            return known[2:]
        text, kind = self._number(show(tx, value, depth)), kind_of(value, depth)
        if kind == FIXED and value.source is None and depth == 2:  # made by the traced code: met again at once or never
            self._newest = value, text
        elif kind == FIXED or manner == "lazy":
            self._known[key] = value, None, text, kind
        else:
            check = _items_check(value) if may_hold_items(value) else _tensor_check(value)
            if check is not None:
                self._known[key] = value, check, text, kind
        return text, kind


def kind_of(value: Any, depth: int = 2) -> int:
    """Say how easily the text of a value changes, in which containers are shown to `depth` levels."""
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
        itself = FIXED if is_kind(value, "TupleVariable") else ITEMS
        if items is not None:
            members = _members_of(value) if depth > 0 else ()
            return max(itself, max((kind_of(each, depth - 1) for each in members), default=FIXED))
    return FIXED if example_of(value) is None else TENSOR


def _tensor_check(value: Any) -> Check | None:
    """Remember of a tensor what the traced code can change; None where comparing symbolic sizes would add guards."""
    known = _facts_of(value)
    return None if known is None else lambda: known == _facts_of(value)


def _facts_of(value: Any) -> tuple[Any, ...] | None:
    example: Any = example_of(value)
    if not is_tensor(example) or example._has_symbolic_sizes_strides:
        return None
    return example.shape, example.dtype, example.requires_grad


def _items_check(value: Any) -> Check | None:
    """Remember what a container holds, and of that what can change; None where that is more than tensors.

    A member that torch looks at for the first time is shown otherwise from then on.
    """
    members = _members_of(value)
    settled_members = [settled(each) for each in members]
    untouched = [each for each in settled_members if is_lazy(each)]
    checks = []
    for each in settled_members:
        kind = FIXED if is_lazy(each) else kind_of(each)
        check = _tensor_check(each) if kind == TENSOR and not may_hold_items(each) else None
        if check is not None:
            checks.append(check)
        elif kind != FIXED:
            return None

    def holds() -> bool:
        now = _members_of(value)
        return (
            len(now) == len(members)
            and all(map(is_, now, members))
            and not any(each.is_realized() for each in untouched)
            and all(check() for check in checks)
        )

    return holds


def _members_of(value: Any) -> list[Any]:
    items = items_of(value)
    return [*items, *items.values()] if isinstance(items, dict) else [*(items or ())]
