"""Cache the texts of symbolic variables until they may change.

A text changes when the traced code mutates the value, or when torch realizes it, or a variable in it, for the first time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import is_
from typing import Any

from dynx._bytecode.trail import Attempt, Trail
from dynx._torch.tracing.render import PLAIN, attribute_name, is_tensor, manner_of, manner_of_class, show, show_value
from dynx._torch.tracing.variables import example_of, is_kind, is_lazy, items_of, may_hold_items, settled

# what may change a text: nothing; an operation on a tensor; also a mutation of a Python value; also torch realizing a variable
FIXED, TENSOR, ITEMS, OPEN = range(4)

FOREVER = -1

Check = Callable[[], bool]  # returns whether a text is unchanged


class ValueTexts:
    """A cache of the texts of symbolic variables, as numbers of texts in a trail; must not outlive the tracing attempt.

    Attributes:
        changes: How many instructions may have changed a text so far, besides those that assign variables.
    """

    __slots__ = ("_attempt", "_attributes", "_by_class", "_cached", "_constants", "_newest", "_number", "_texts", "changes")

    def __init__(self, trail: Trail, attempt: Attempt) -> None:
        self._number, self._texts, self._attempt = trail.text, trail.texts, attempt
        self.changes = 0
        self._by_class: dict[type, tuple[str, Callable[[Any], str] | None, tuple[int, int] | None]] = {}
        self._constants: dict[tuple[type, Any], int] = {}  # texts by type and value
        self._attributes: dict[tuple[int, str], int] = {}  # texts by that of the object, and the name
        self._newest: tuple[Any, int] = (None, 0)
        # by id(), valid while the value is referenced
        self._cached: dict[int, _Cached] = {}

    def of(self, tx: Any, value: Any, depth: int = 2) -> tuple[int, int]:
        """Return the trail's number of a variable's text, with `depth` levels of containers, and what may change the text."""
        cls: Any = type(value)
        manner, plain, of_class = self._by_class.get(cls) or self._add_class(cls)
        if of_class is not None:
            return of_class
        if manner == "constant":
            return self._of_constant(value), FIXED
        if plain is not None:  # faster to write than to look up
            return self._number(plain(value)), FIXED
        if manner == "attribute":  # a bound method that is about to be called
            obj = settled(value.obj)
            text, kind = self.of(tx, obj, 1 if may_hold_items(obj) else 2)
            name = attribute_name(value)
            number = self._attributes.get((text, name))
            if number is None:
                number = self._attributes[text, name] = self._number(f"{self._texts[text]}.{name}")
            return number, kind
        if manner == "cell":
            return self._number(show(tx, value)), OPEN
        if manner == "lazy":
            if value.is_realized():
                return self.of(tx, value.unwrap(), depth)
        elif value is self._newest[0]:
            return self._newest[1], FIXED
        key = id(value) if depth == 2 else -id(value)
        cached = self._cached.get(key)
        if cached is not None:
            if cached.checked == self.changes or cached.checked == FOREVER:
                return cached.text, cached.kind
            if cached.check is not None and cached.check():
                cached.checked = self.changes
                return cached.text, cached.kind
        text, kind = self._number(show(tx, value, depth)), kind_of(value, depth)
        if kind == FIXED and value.source is None and depth == 2:  # created by the traced code: read again at once or never
            self._newest = value, text
        elif kind == FIXED or manner == "lazy":
            self._cached[key] = _Cached(value, None, text, kind, FOREVER)
        else:
            check = None  # making one takes as long as a check, and many values are read once only
            if cached is not None:
                check = (_items_check if may_hold_items(value) else _tensor_check)(value, self._attempt)
            self._cached[key] = _Cached(value, check, text, kind, self.changes)
        return text, kind

    def _add_class(self, cls: type) -> tuple[str, Callable[[Any], str] | None, tuple[int, int] | None]:
        manner = manner_of_class(cls)
        plain = PLAIN.get(manner)
        of_class = (self._number(plain(None)), FIXED) if plain is not None and manner in ("null", "super") else None
        self._by_class[cls] = manner, plain, of_class
        return self._by_class[cls]

    def _of_constant(self, variable: Any) -> int:
        value = variable.value
        cls = type(value)
        if cls is not str and cls is not int and cls is not bool and value is not None:
            return self._number(show_value(value))
        number = self._constants.get((cls, value))
        if number is None:
            number = self._constants[cls, value] = self._number(show_value(value))
        return number


@dataclass(slots=True)
class _Cached:
    """The text of a variable, which is kept alive so that nothing else gets its id()."""

    value: Any
    check: Check | None
    text: int
    kind: int
    checked: (
        int  # `ValueTexts.changes` when the text was right; FOREVER if it stays right as long as the variable has its class
    )


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


def _tensor_check(value: Any, attempt: Attempt) -> Check | None:
    """Return a check that a tensor's metadata is unchanged; None if comparing its symbolic sizes would add guards."""
    before, checked = _facts_of(value), attempt.changes
    if before is None:
        return None

    def is_unchanged() -> bool:
        nonlocal checked
        if attempt.changes != checked:
            if before != _facts_of(value):
                return False
            checked = attempt.changes
        return True

    return is_unchanged


def _facts_of(value: Any) -> tuple[Any, ...] | None:
    example: Any = example_of(value)
    if not is_tensor(example) or example._has_symbolic_sizes_strides:
        return None
    return example.shape, example.dtype, example.requires_grad


def _items_check(value: Any, attempt: Attempt) -> Check | None:
    """Return a check that a container's members are unchanged; None if the text of members other than tensors may change.

    The text of a lazy member changes when torch realizes it.
    """
    members = _members_of(value)
    settled_members = [settled(member) for member in members]
    unrealized = [member for member in settled_members if is_lazy(member)]
    checks = []
    for member in settled_members:
        kind = FIXED if is_lazy(member) else kind_of(member)
        check = _tensor_check(member, attempt) if kind == TENSOR and not may_hold_items(member) else None
        if check is not None:
            checks.append(check)
        elif kind != FIXED:
            return None

    def is_unchanged() -> bool:
        now = _members_of(value)
        if len(now) != len(members) or not all(map(is_, now, members)):
            return False
        if unrealized and any(member.is_realized() for member in unrealized):
            return False
        return not checks or all(check() for check in checks)

    return is_unchanged


def _members_of(value: Any) -> list[Any]:
    items = items_of(value)
    return [*items, *items.values()] if isinstance(items, dict) else [*(items or ())]
