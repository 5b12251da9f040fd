"""What is known of one symbolic frame while it is traced, so that only what changed is written down.

A value's text changes when the traced code changes the value, or when torch looks at it for the first time. Instructions that
only move values do neither; others that add no guard looked at nothing, and without a new node of the graph no tensor changed.

Torch: `stack` and `symbolic_locals` of `InstructionTranslatorBase`; alike in 2.11, 2.13 and 2.15.
"""

from __future__ import annotations

from array import array
from operator import is_
from typing import Any

from dynx._torch.rendering import show
from dynx._torch.translator import HIDDEN
from dynx._torch.variables import cell_content, example_of, is_kind, is_lazy, items_of, settled
from dynx._trail import NOTHING, Attempt, Trail

_FIXED, _TENSOR, _OPEN = range(3)  # a text that stays; changes at most when the graph grows; may change at any time


class RecordedFrame:
    """The state of a frame at its last row. Lives on its translator and ends with it."""

    __slots__ = (
        *("attempt", "bindings", "graph", "graphs", "is_root", "links", "number", "passed", "place", "places", "row"),
        *(
            "_cells",
            "_constants",
            "_links",
            "_members",
            "_open",
            "_stack",
            "_stack_texts",
            "_tensors",
            "_texts",
            "_trail",
            "_values",
        ),
        *("exception", "guards", "nodes"),
    )

    def __init__(
        self,
        trail: Trail,
        number: int,
        attempt: Attempt,
        graphs: dict[Any, Any],  # of the attempt, what the recorder knows of them
        places: array[int],
        constants: dict[int, int],  # places of LOAD_CONST to texts
    ) -> None:
        self._trail = trail
        self.number, self.attempt, self.graphs, self.places = number, attempt, graphs, places
        self.is_root = False
        self.row = -2  # the last one; before the first one none comes right after it
        self.graph = self.nodes = self.guards = 0
        self.exception = NOTHING
        self.bindings = NOTHING
        self.place = NOTHING  # of the last row
        self.passed: dict[int, int] = {}  # of values that the caller may have passed on, by identity, their texts
        self._constants = constants
        self._stack: list[Any] = []
        self._stack_texts: list[int] = []
        self.links: list[int] = []
        self._values: dict[str, Any] = {}
        self._texts: dict[str, int] = {}
        self._cells: set[str] = set()
        self._open: set[str] = set()  # names of values whose text may change at any time
        self._members: dict[str, list[Any]] = {}  # of containers whose text changes only when these do
        self._tensors: set[str] = set()  # those whose text changes at most when the graph grows

    def on_stack(self) -> dict[int, int]:
        """Give the texts of the values on the stack by identity."""
        return dict(zip(map(id, self._stack), self._stack_texts, strict=True))

    def moved(self, tx: Any, last: Any) -> None:
        """Follow the last instruction, which only moved values."""
        name = last.opname
        if name == "LOAD_FAST":
            self._push(tx, tx.stack[-1], self._texts.get(last.argval))
        elif name == "LOAD_CONST":
            self._push(tx, tx.stack[-1], self._constants.get(self.place))
            self._constants[self.place] = self._stack_texts[-1]
        else:
            self.read_stack(tx, opened=False, grown=False)

    def stored(self, tx: Any, name: str | None) -> None:
        """Follow the last instruction, which assigned a local, or any where the name is None."""
        self.read_stack(tx, opened=False, grown=False)
        if name is None or name not in self._values:
            self.read_locals(tx, opened=False, grown=False)
        else:
            self._read_local(tx, name, tx.symbolic_locals[name], opened=False, grown=False)

    def read_stack(self, tx: Any, *, opened: bool, grown: bool, loaded: str | None = None) -> None:
        """Read the value stack; `loaded` names the local that the last instruction may have put on top."""
        known, texts, stack = self._stack, self._stack_texts, tx.stack
        same, length, text = 0, len(known), None
        if opened or grown:
            for before, now in zip(known, stack):  # noqa: B905 - they differ in length
                if before is not now or (text := self._changed_text(tx, same, now, opened, grown)) is not None:
                    break
                same += 1
        elif length and length < len(stack) and stack[length - 1] is known[-1]:
            same = length  # one was pushed, those below are as they were
        else:
            for before, now in zip(known, stack):  # noqa: B905
                if before is not now:
                    break
                same += 1
        if same < length:
            del known[same:], texts[same:], self.links[same:]
        for value in stack[same:]:
            if text is None and loaded is not None and self._values.get(loaded) is value:
                text = self._texts.get(loaded)
            self._push(tx, value, text)
            text = None

    def read_locals(self, tx: Any, *, opened: bool, grown: bool) -> None:
        """Read every local; one may have been assigned."""
        variables = tx.symbolic_locals
        for name, value in variables.items():
            if name not in self._values and is_kind(value, "CellVariable"):
                self._cells.add(name)
            self._read_local(tx, name, value, opened=opened, grown=grown)
        self.passed = {}
        if len(self._values) != len(variables):
            self._forget(variables)

    def reread_locals(self, tx: Any, *, opened: bool, grown: bool) -> None:
        """Read those locals whose text may have changed, where none was assigned."""
        variables = tx.symbolic_locals
        if opened:
            for name in self._cells:
                if cell_content(tx, variables[name]) is not self._values[name]:
                    self._read_local(tx, name, variables[name], opened=opened, grown=grown)
        for name in (*(self._open if opened else ()), *(self._tensors if grown else ())):
            self._read_local(tx, name, variables[name], opened=opened, grown=grown)

    def _read_local(self, tx: Any, name: str, value: Any, *, opened: bool, grown: bool) -> None:
        if name in self._cells:
            value = cell_content(tx, value) or value
        if self._values.get(name) is not value:
            self._values[name] = value
        elif not self._may_differ(name, value, opened, grown):
            return
        self._classify(name, value)
        if name.startswith(HIDDEN):
            return
        text = self.passed.get(id(value)) if self.passed else None
        if text is None:
            text = self._trail.text(show(tx, value))
        if self._texts.get(name) != text:
            self._texts[name] = text
            self.bindings = self._trail.bind(self.bindings, self._trail.text(name), text)

    def _may_differ(self, name: str, value: Any, opened: bool, grown: bool) -> bool:
        """Tell whether the text of a local may have changed though it is the same value."""
        if name in self._tensors:
            return grown
        if name not in self._open or not (opened or grown):
            return False
        members = self._members.get(name)
        return grown or members is None or not _are_same(members, _members_of(value))

    def _classify(self, name: str, value: Any) -> None:
        kind = _kind(value)
        (self._open.add if kind == _OPEN else self._open.discard)(name)
        (self._tensors.add if kind == _TENSOR else self._tensors.discard)(name)
        members = _members_of(value) if kind == _OPEN else None
        if members and not any(_kind(each) == _OPEN for each in members):
            self._members[name] = members
        else:
            self._members.pop(name, None)

    def _push(self, tx: Any, value: Any, text: int | None) -> None:
        if text is None:
            text = self._trail.text(show(tx, value))
        links = self.links
        links.append(self._trail.push(links[-1] if links else NOTHING, text))
        self._stack.append(value)
        self._stack_texts.append(text)

    def _changed_text(self, tx: Any, index: int, value: Any, opened: bool, grown: bool) -> int | None:
        """Give the text of a value on the stack if it differs from what it was."""
        kind = _kind(value)
        if kind == _FIXED or not (grown if kind == _TENSOR else opened):
            return None
        text = self._trail.text(show(tx, value))
        return None if text == self._stack_texts[index] else text

    def _forget(self, variables: dict[str, Any]) -> None:
        for name in [each for each in self._values if each not in variables]:
            del self._values[name]
            self._open.discard(name)
            self._tensors.discard(name)
            self._cells.discard(name)
            if self._texts.pop(name, None) is not None:
                self.bindings = self._trail.bind(self.bindings, self._trail.text(name), NOTHING)


def _members_of(value: Any) -> list[Any]:
    value = settled(value)
    items = None if is_lazy(value) else items_of(value)
    return [*items, *items.values()] if isinstance(items, dict) else list(items or ())


def _are_same(before: list[Any], now: list[Any]) -> bool:
    return len(before) == len(now) and all(map(is_, before, now))


def _kind(value: Any) -> int:
    """Say when the text of a value may change."""
    if is_kind(value, "ConstantVariable", "NullVariable", "BaseUserFunctionVariable"):
        return _FIXED
    value = settled(value)
    if is_kind(value, "TupleVariable"):  # itself it never changes
        return max(map(_kind, items_of(value) or ()), default=_FIXED)
    if is_lazy(value) or is_kind(value, "CellVariable") or items_of(value) is not None:
        return _OPEN
    return _FIXED if example_of(value) is None else _TENSOR
