"""One kind of record that a run may hold: declared once, and everything that handles records derives from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol, Self, TypeVar, overload

from dynx.records.codec import register
from dynx.records.record import Record
from dynx.records.table import Table

R = TypeVar("R", bound=Record)


class HasEvents(Protocol):
    """What holds records in the order they were committed."""

    @property
    def events(self) -> tuple[Record, ...]: ...


class Kind(Generic[R]):
    """A group of a run: the records of one class, merged; read as an attribute of the run.

    The attribute's name is also the group's name in `Run.to_json`. The declaration is all that a new kind of record needs:
    the codec, run files, `Run`, `Watch`, the terminal and the notebook derive from it.

    Args:
        record: the class; only its own instances are members, not those of subclasses.
        name: the "type" of the record in run files.
        doc: one sentence about the group.
        merge: joins records of the same thing; by default every record is kept.
        table: how a terminal and a notebook list the records; None where neither does, or by a view of its own.

    Example:
        >>> from dataclasses import dataclass
        >>> from dynx.records import Record, Run
        >>> @dataclass(frozen=True, slots=True)
        ... class Note(Record):
        ...     text: str
        >>> class AnnotatedRun(Run):
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
        raise AttributeError(f"{self.group} of a run is computed from its events and cannot be set")


def kinds_of(cls: type) -> tuple[Kind[Any], ...]:
    """Return the kinds that a class of runs holds, in the order of their declaration."""
    return tuple(kind for base in reversed(cls.__mro__) for kind in vars(base).values() if isinstance(kind, Kind))
