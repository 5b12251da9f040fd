"""`Kind`: declares a kind of record once, for run files, `Run`, `Watch`, the terminal and the notebook."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol, Self, TypeVar, overload

from dynx.records.codec import register
from dynx.records.record import Record
from dynx.records.table import Table

R = TypeVar("R", bound=Record)


class HasEvents(Protocol):
    """An object such as `Run` or `Watch`, whose `events` are all records of a run in the order in which they were made."""

    @property
    def events(self) -> tuple[Record, ...]: ...


class Kind(Generic[R]):
    """A descriptor that selects the records of one class from a run: `run.recompiles` returns all `Recompile` records.

    The attribute's name is also the key in `Run.to_json`. To add a new kind of record, only declare its `Kind`: the codec,
    run files, `Run`, `Watch`, the terminal and the notebook read this declaration.

    Args:
        record: the class of the records; instances of subclasses are not selected.
        name: the "type" of the record in run files.
        doc: the docstring of the attribute, one sentence.
        merge: joins records of the same event into one record; by default every record is kept.
        table: how a terminal and a notebook list the records in a table; None for no table.

    Example:
        >>> import dynx
        >>> from dataclasses import dataclass
        >>> from dynx.records import Record
        >>> @dataclass(frozen=True, slots=True)
        ... class Note(Record):
        ...     text: str
        >>> class AnnotatedRun(dynx.Run):
        ...     notes = Kind(Note, "note", "Notes of the user.")
        >>> AnnotatedRun((Note("slow since Monday"),)).notes
        (Note(text='slow since Monday'),)
    """

    def __init__(
        self,
        record: type[R],
        name: str,
        doc: str,
        *,
        merge: Callable[[Iterable[R]], tuple[R, ...]] = tuple,
        table: Table[R] | None = None,
    ) -> None:
        register(name, record)
        self.record = record
        self.group = name
        self.table = table
        self._merge = merge
        self.__doc__ = doc

    def followed_by(self, change: Callable[[R], R]) -> Kind[R]:
        """Return a copy that applies `change` to each record it returns, for use in a subclass of `RunRecords`."""
        kind, merge = copy.copy(self), self._merge
        kind._merge = lambda records: tuple(map(change, merge(records)))
        return kind

    def __set_name__(self, owner: type, name: str) -> None:
        self.group = name

    @overload
    def __get__(self, run: None, owner: type) -> Self: ...
    @overload
    def __get__(self, run: HasEvents, owner: type) -> tuple[R, ...]: ...
    def __get__(self, run: HasEvents | None, owner: type) -> Self | tuple[R, ...]:
        if run is None:
            return self
        return self._merge(event for event in run.events if type(event) is self.record)

    def __set__(self, run: HasEvents, value: object) -> None:
        raise AttributeError(f"{self.group} cannot be set: it is computed from run.events\n  create a Run with other events")


def kinds_of(cls: type) -> tuple[Kind[Any], ...]:
    """Return the `Kind` descriptors of a class such as `Run`, in the order of their first declaration."""
    kinds = (kind for base in reversed(cls.__mro__) for kind in vars(base).values() if isinstance(kind, Kind))
    return tuple({kind.group: kind for kind in kinds}.values())  # a subclass may declare a kind again
