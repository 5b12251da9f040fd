"""Detect, name and undo what a function assigns to attributes and containers while it is captured.

Python code does not run in replays, and tensors that a capture creates have no values until a replay. So a function that
assigns something which a replay would not assign again is refused, and the assignments of a discarded capture are undone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_leaves

from dynx._reading.variables import Variable
from dynx.cudagraphs._operator_mode import OperatorMode
from dynx.cudagraphs._search.identity import holds_tensors, identity_of, tensors_in
from dynx.cudagraphs._search.readers import attributes_of
from dynx.cudagraphs._search.search import is_tensor

_MISSING = type("_Missing", (), {})  # stands for an absent key; a class, in which `holds_tensors` finds none
_LISTS = list, deque


class Place(NamedTuple):
    """The attributes of an object, or the elements of a container, to which a function may assign.

    Attributes:
        values: The dict of the object's attributes, or the container.
        text: How messages name an assigned element; "" for attributes, which messages call by their names.
        keeps_objects: Whether a capture may assign tensors, and objects with tensors, because replays update their memory.
        is_shared: Whether other threads may assign to `values` during the capture.
    """

    values: Any
    text: str = ""
    keeps_objects: bool = False
    is_shared: bool = False


def place_of(owner: Any, *, keeps_objects: bool, is_shared: bool) -> Place | None:
    """Return the Place for the elements of a dict, list or deque, else for an object's `__dict__`; None if it has none.

    Objects of dynx have no Place either. `keeps_objects` and `is_shared` become attributes of the Place.
    """
    kind = type(owner)
    if str(kind.__module__).startswith("dynx."):
        return None
    if issubclass(kind, (dict, *_LISTS)):
        return Place(owner, f"an element of a {kind.__name__}", keeps_objects, is_shared)
    attributes = attributes_of(owner)
    return Place(attributes, "", keeps_objects, is_shared) if attributes is not None else None


class Assignments:
    """A snapshot, before a capture, of what the function may assign; it finds and undoes what the capture assigned.

    `places` are attributes and elements; shallow copies are kept. `variables` are globals, closure variables and attributes of
    classes that the function's code may assign. `names` are the names of the attributes that this code assigns.
    """

    def __init__(
        self, places: Iterable[Place | None], variables: Iterable[Variable] = (), names: Set[str] = frozenset()
    ) -> None:
        self._before = [(place, place.values.copy()) for place in places if place is not None]
        self._variables = [(variable, variable.get()) for variable in variables]
        self._names, self._read = set(names), _ReadMemory()

    def and_of(self, others: Iterable[Assignments]) -> Assignments:
        """Add the snapshots in `others` to this one, except attributes and containers that it already has; return `self`."""
        known = {id(place.values) for place, _ in self._before}
        for other in others:
            self._before += [each for each in other._before if id(each[0].values) not in known]
            self._variables += other._variables
            self._names |= other._names
        return self

    def reading(self) -> AbstractContextManager[Any]:
        """Return a context manager to run the function in; it records which memory operators read, as `settle` has to know."""
        return self._read

    def settle(self) -> str:
        """Return the names of assignments that a replay would not repeat, or ""; if there are any, undo all assignments."""
        names = [name for place, before in self._before for name in self._refused(place, before)]
        for variable, before in self._variables:
            change = _Change(variable.path, before, variable.get())
            if _is_change(change) and (not holds_tensors(change.new) or self._has_read(change.old)):
                names.append(variable.path + (_READ if holds_tensors(change.new) else ""))
        if names:
            self.undo()
        self._forget()
        return ", ".join(dict.fromkeys(names))

    def undo(self) -> None:
        """Undo all assignments, except those that another thread may have made."""
        for place, before in self._before:
            if any(self._is_own(place, before, change) for change in _changes(place.values, before)):
                _assign(place.values, before)
        for variable, before in self._variables:
            variable.set(before)
        self._forget()

    def _forget(self) -> None:
        """Drop the snapshot to free its values: the captured function refers to this object, and would keep them alive."""
        self._before, self._variables, self._read = [], [], _ReadMemory()

    def _refused(self, place: Place, before: Any) -> Iterator[str]:
        for change in _changes(place.values, before):
            name = place.text or str(change.key)
            if place.keeps_objects and holds_tensors(change.new):
                if self._has_read(change.old):
                    yield f"{name}{_READ}"
            elif self._is_own(place, before, change):
                yield name

    def _has_read(self, value: Any) -> bool:
        return any(map(self._read.has, tensors_in(value)))

    def _is_own(self, place: Place, before: Any, change: _Change) -> bool:
        """Return whether `change` was made by the captured function, and not by another thread."""
        if not place.is_shared:
            return True
        if holds_tensors(change.new):
            return not any(change.new is value for value in (before.values() if isinstance(before, dict) else before))
        return not place.text and change.key in self._names


class _Change(NamedTuple):
    key: Any
    old: Any
    new: Any


_READ = " (and reads it)"


def _is_change(change: _Change) -> bool:
    return change.old is not change.new and identity_of(change.old) != identity_of(change.new)


def _changes(now: Any, before: Any) -> Iterator[_Change]:
    """Yield the items of the dict or list `now` that were added, removed or replaced since its copy `before` was made."""
    then, later = _by_key(before), _by_key(now)
    for key in {**then, **later}:
        change = _Change(key, then.get(key, _MISSING), later.get(key, _MISSING))
        if _is_change(change):
            yield change


def _by_key(values: Any) -> Mapping[Any, Any]:
    return dict(values) if isinstance(values, dict) else dict(enumerate(values))


def _assign(values: Any, before: Any) -> None:
    values.clear()
    values.update(before) if isinstance(values, dict) else values.extend(before)


class _ReadMemory(OperatorMode):
    """A dispatch mode that records the addresses of tensors that are passed to operators."""

    def __init__(self) -> None:
        super().__init__()
        self._addresses: set[int] = set()

    def __torch_dispatch__(self, operator: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        self._addresses.update(map(_address, filter(_has_memory, tree_leaves((args, kwargs)))))
        return operator(*args, **(kwargs or {}))

    def has(self, tensor: torch.Tensor) -> bool:
        """Return whether an operator that ran in this mode had an argument in the memory of `tensor`."""
        return _has_memory(tensor) and _address(tensor) in self._addresses


def _has_memory(value: Any) -> bool:
    return is_tensor(value) and value.layout is torch.strided


def _address(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
