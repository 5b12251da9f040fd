"""Render Dynamo's symbolic variables as text for the user, and cache each text until it may change.

A text changes when the traced code mutates the value, or when torch realizes it, or a variable in it, for the first time. The
level of a text says what may change it: FIXED nothing; TENSOR an operation on a tensor; ITEMS also a mutation of a Python
value; OPEN also torch realizing a lazy variable. Texts are stored in a `Trail` (`dynx._bytecode.trail`), which numbers them.

Torch: `LazyVariableTracker._cache.vt` is the variable behind a lazy one that torch has realized.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from operator import is_
from typing import Any

from dynx._bytecode.trail import Trail
from dynx._torch.tracing.render import (
    MAX_ITEMS,
    PLAIN,
    assigned_fields,
    attribute_name,
    is_tensor,
    manner_of_class,
    show,
    show_container,
    show_example,
    show_value,
    shown_fields,
)
from dynx._torch.tracing.variables import cell_content, class_may_hold_items, example_of, is_kind, items_of, untouched_value

# levels: what may change a text. FIXED: nothing; TENSOR: an operation on a tensor; ITEMS: also a mutation of a Python value;
# OPEN: also torch realizing a lazy variable
FIXED, TENSOR, ITEMS, OPEN = range(4)


def changed_level(before: list[int], now: list[int]) -> int:
    """Compare two copies of the counters `ValueTexts.changes`; return the lowest level at which texts may have changed.

    The level of a text says what may change it. Return FIXED if no text may have changed between the two copies.
    """
    if before == now:
        return FIXED
    return TENSOR if before[TENSOR] != now[TENSOR] else ITEMS if before[ITEMS] != now[ITEMS] else OPEN


Text = tuple[int, int]  # number of a text in the trail, and its level
# takes the cache, a translator, a variable and the number of container levels to show
Reader = Callable[["ValueTexts", Any, Any, int], Text]


class ValueTexts:
    """A cache, for one tracing attempt, of the texts that show symbolic variables to the user.

    The trail, a log of the trace, stores each text once, under a number; a `Text` is this number with the text's level.
    """

    __slots__ = (
        *("_attributes", "_constants", "_containers", "_newest", "_null", "_objects", "_super"),
        *("_texts", "_unrealized", "changes", "number"),
    )

    def __init__(self, trail: Trail) -> None:
        self.number, self._texts = trail.text, trail.texts  # the former returns the trail's number of a text
        self.changes = [0, 0, 0, 0]  # how many times texts may have changed so far, by level
        self._null, self._super = ((trail.text(PLAIN[manner](None)), FIXED) for manner in ("null", "super"))
        self._constants: dict[tuple[type, Any], Text] = {}  # by type and value
        self._attributes: dict[tuple[int, str], int] = {}  # text of a bound method, by the text of its object and its name
        self._newest: tuple[Any, Text] = (None, (0, FIXED))
        # by id(variable), plus the number of container levels if it matters; entries keep variables alive, so ids are unique
        self._objects: dict[int, _Object] = {}
        self._containers: dict[int, _Container] = {}
        self._unrealized: dict[int, tuple[Any, Text]] = {}

    def of(self, tx: Any, value: Any, depth: int = 2) -> Text:
        """Return the text of the variable `value` as a pair: its number in the trail, and a level that says what may change it.

        Containers are shown `depth` levels deep. `tx` is the InstructionTranslator that traces the code.
        """
        return READERS[type(value)](self, tx, value, depth)

    def may_have_changed(self, level: int) -> None:
        """Invalidate the cached texts of this level and of higher levels: they are rendered again when they are read."""
        for kind in range(level, OPEN + 1):
            self.changes[kind] += 1

    def forget(self, container: Any) -> None:
        """Discard the cached text of a container."""
        for depth in range(3):
            self._containers.pop(id(container) + depth, None)

    def _of_null(self, tx: Any, variable: Any, depth: int) -> Text:
        return self._null

    def _of_super(self, tx: Any, variable: Any, depth: int) -> Text:
        return self._super

    def _of_constant(self, tx: Any, variable: Any, depth: int) -> Text:
        value = variable.value
        cls = type(value)
        if cls is not str and cls is not int and cls is not bool and value is not None:
            return self.number(show_value(value)), FIXED
        text = self._constants.get((cls, value))
        if text is None:
            text = self._constants[cls, value] = self.number(show_value(value)), FIXED
        return text

    def _of_attribute(self, tx: Any, variable: Any, depth: int) -> Text:
        """Return the text of a bound method on the stack, such as `x.sum`, which the next instructions call."""
        obj = variable.obj
        text, kind = READERS[type(obj)](self, tx, obj, 1)
        name = attribute_name(variable)
        number = self._attributes.get((text, name))
        if number is None:
            number = self._attributes[text, name] = self.number(f"{self._texts[text]}.{name}")
        return number, kind

    def _of_cell(self, tx: Any, cell: Any, depth: int) -> Text:
        content = cell_content(tx, cell)
        return self.number("<empty cell>") if content is None else self.of(tx, content, depth)[0], OPEN

    def _of_lazy(self, tx: Any, variable: Any, depth: int) -> Text:
        realized = variable._cache.vt
        if realized is not None:
            return READERS[type(realized)](self, tx, realized, depth)
        unrealized = self._unrealized.get(id(variable) + depth)
        if unrealized is None:
            text = self.number(show_value(untouched_value(variable), depth)), OPEN
            unrealized = self._unrealized[id(variable) + depth] = variable, text
        return unrealized[1]

    def _of_object(self, tx: Any, variable: Any, depth: int) -> Text:
        """Return the text of a tensor, a symbolic number, or an object of any class."""
        cached = self._objects.get(id(variable))
        if cached is None:
            if variable is self._newest[0]:
                return self._newest[1]
            if id(variable) + depth in self._containers:
                return self._of_container(tx, variable, depth)
            example = example_of(variable)
            if example is not None:
                text = self.number(show_example(variable, example)), TENSOR
            elif shown_fields(variable):
                return self._of_container(tx, variable, depth)
            else:
                text = self.number(show(tx, variable)), FIXED
                if variable.source is None:  # created by traced code: read again immediately or never
                    self._newest = variable, text
                    return text
            cached = self._objects[id(variable)] = _Object(variable, text, self.changes[text[1]])
        elif cached.checked != self.changes[cached.text[1]]:
            cached.checked, facts = self.changes[TENSOR], _facts_of(variable)
            if facts is None or facts != cached.facts:
                cached.facts, cached.text = facts, (self.number(show(tx, variable)), TENSOR)
        return cached.text

    def _of_container(self, tx: Any, variable: Any, depth: int) -> Text:
        """Return the text of a built-in container or a dataclass, with the texts of its items, down to `depth` levels."""
        key = id(variable) + depth
        cached = self._containers.get(key)
        if cached is None:
            if id(variable) in self._objects:
                return self._of_object(tx, variable, depth)
        elif cached.checked[cached.text[1]] == self.changes[cached.text[1]]:
            return cached.text
        elif self._is_unchanged(tx, cached):
            cached.checked = self.changes.copy()
            return cached.text
        contents = _contents_of(tx, variable)
        if contents is None or example_of(variable) is not None:  # the size of a tensor may be in the graph
            return self._of_object(tx, variable, depth)
        kind = FIXED if is_kind(variable, "TupleVariable") else ITEMS
        texts = self._texts
        changing: list[tuple[Any, int, Text]] = []

        def show_member(member: Any, levels: int) -> str:
            nonlocal kind
            text = READERS[type(member)](self, tx, member, levels)
            if text[1] != FIXED:
                changing.append((member, levels, text))
                kind = max(kind, text[1])
            return texts[text[0]]

        number = self.number(show_container(tx, variable, show_member, depth))
        text, members = (number, kind), _shown_members(contents)
        self._containers[key] = _Container(variable, text, self.changes.copy(), len(contents), members, changing)
        return text

    def _is_unchanged(self, tx: Any, cached: _Container) -> bool:
        """Return whether the cached text of a container is valid: its members and their texts are the same as before."""
        level = changed_level(cached.checked, self.changes)
        if level != OPEN:
            contents = _contents_of(tx, cached.variable)
            if contents is None or len(contents) != cached.length:
                return False
            if not all(map(is_, _shown_members(contents), cached.members)):
                return False
        for member, levels, text in cached.changing:
            if text[1] >= level and self.of(tx, member, levels)[0] != text[0]:
                return False
        return True


@dataclass(slots=True)
class _Object:
    """The cached text of a tensor or an object, and the state against which it is checked before it is used again."""

    variable: Any
    text: Text
    checked: int  # number of changes when the text was last checked
    facts: tuple[Any, ...] | None = None  # what the text shows; None before the second check: many values are read only once


@dataclass(slots=True)
class _Container:
    """The cached text of a container, and the members that it shows: if one of them changes, the text is invalid."""

    variable: Any
    text: Text
    checked: list[int]  # numbers of changes, by level, when the text was last checked
    length: int
    members: list[Any]  # members that the text shows
    changing: list[tuple[Any, int, Text]]  # members whose text may change: member, its container levels, its text


def _facts_of(variable: Any) -> tuple[Any, ...] | None:
    """Return the shape, dtype and requires_grad of a tensor; None if it has symbolic sizes, as comparing them adds guards."""
    example: Any = example_of(variable)
    if not is_tensor(example) or example._has_symbolic_sizes_strides:
        return None
    return example.shape, example.dtype, example.requires_grad


def _contents_of(tx: Any, variable: Any) -> list[Any] | dict[Any, Any] | None:
    """Return the variables in a built-in container, or those assigned to the fields of a dataclass; None for other classes."""
    items = items_of(variable)
    return items if items is not None or not shown_fields(variable) else assigned_fields(tx, variable)


def _shown_members(contents: list[Any] | dict[Any, Any]) -> list[Any]:
    if isinstance(contents, dict):
        return [*islice(contents, MAX_ITEMS), *islice(contents.values(), MAX_ITEMS)]
    return contents[:MAX_ITEMS]


class _Readers(dict[type, Reader]):
    """A dict from the class of a variable to the method of `ValueTexts` that returns its text."""

    def __missing__(self, cls: type) -> Reader:
        self[cls] = _reader_of(cls)
        return self[cls]


READERS = _Readers()
_BY_MANNER: Mapping[str, Reader] = {
    "attribute": ValueTexts._of_attribute,
    "cell": ValueTexts._of_cell,
    "constant": ValueTexts._of_constant,
    "lazy": ValueTexts._of_lazy,
    "null": ValueTexts._of_null,
    "super": ValueTexts._of_super,
}


def _reader_of(cls: Any) -> Reader:
    manner = manner_of_class(cls)
    if manner in _BY_MANNER:
        return _BY_MANNER[manner]
    plain = PLAIN.get(manner)
    if plain is not None:  # rendering it is faster than a lookup
        return lambda texts, tx, variable, depth: (texts.number(plain(variable)), FIXED)
    return ValueTexts._of_container if class_may_hold_items(cls) else ValueTexts._of_object
