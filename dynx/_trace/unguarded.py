"""`UnguardedValues`: find values that changed while compiled code kept the old ones."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from dynx._handle import Handle
from dynx._reading.user_location import location_of_call, owner_of_file, user_location
from dynx._torch.tracing.stack import of_parts
from dynx._torch.unguarded.compiled_calls import call_in, on_compiled_call
from dynx._torch.unguarded.entry import WatchedEntry
from dynx._torch.unguarded.probes import REGISTERED
from dynx._torch.unguarded.read import Read
from dynx._torch.unguarded.recording import Recording
from dynx._trace.bus import listen
from dynx._trace.dispatch import CompileEnd
from dynx.errors import UnsupportedTorch
from dynx.records import Location, Record, Trouble
from dynx.records.unguarded import StaleValue, Unguarded, UnguardedRead

_MEMBER = re.compile(r"(?:\.|\[')(?P<name>\w+)(?:'\])?(?:\.f[gs]et|\.__func__|\.__code__)?$")
_CONSTANT = re.compile(r"""[b]?['"]|-?\d|True|False|None""")
_FREE = 0.05  # seconds that may be spent at once
_SHARE = 0.01  # of the time, after that
_PURPOSE = "values that changed while compiled code kept the old ones"


@dataclass(slots=True, eq=False)
class _Entry:
    generation: int
    id: str
    location: Location
    watched: WatchedEntry
    unguarded: tuple[Read, ...]


class UnguardedValues(Handle):
    """Records what compiled code read without a guard, and looks before calls of compiled functions whether it changed.

    A look before each call would cost too much in a program with many calls: after 0.05 s, looks take 1 % of the time.
    """

    def __init__(self, record: Callable[[Record], None]) -> None:
        self._record = record
        self._entries: list[_Entry] = []
        self._looking = threading.Lock()
        self._spent, self._next = 0.0, 0.0  # seconds of looks so far; the clock before which there is no further look
        self._handles: list[Handle] = [listen(lambda record: None, on_end=self._on_end, explains_recompiles=False)]
        try:
            self._handles.append(Recording(self._failed))
        except UnsupportedTorch as error:
            record(Trouble(_PURPOSE, str(error)))

    def _failed(self, hook: str, error: BaseException) -> None:
        self._record(Trouble(_PURPOSE, f"{hook}: {type(error).__name__}: {error}"))

    def _on_end(self, end: CompileEnd) -> None:
        if end.guards is None or not end.reads:
            return
        watched = WatchedEntry(end.guards, end.code, end.globals, end.reads)
        with self._looking:
            self._entries.append(_Entry(end.generation, end.id, end.location, watched, _unguarded(end)))
        if len(self._handles) == 2:
            self._handles.append(on_compiled_call(self._on_call))

    def _on_call(self) -> None:
        began = time.perf_counter()
        if began < self._next or not self._looking.acquire(blocking=False):
            return
        try:
            self._look()
        except Exception as error:  # noqa: BLE001 - a failing observer must not stop the call
            self._failed("compiled_call", error)
        finally:
            ended = time.perf_counter()
            self._spent += ended - began
            if self._spent > _FREE:
                self._next = ended + (ended - began) / _SHARE
            self._looking.release()

    def _look(self) -> None:
        call = call_in(sys._getframe(2))
        for entry in self._entries:
            if entry.watched.is_alive:
                entry.watched.look(call.locals if call is not None else {}, location_of_call)

    def remove(self) -> None:
        while self._handles:
            self._handles.pop().remove()
        with self._looking:
            entries, self._entries = self._entries, []
        for entry in entries:
            self._emit(entry)

    def _emit(self, entry: _Entry) -> None:
        of = entry.generation, entry.id, entry.location
        reads = tuple(UnguardedRead(read.kind, read.text, read.value, _line(read)) for read in entry.unguarded)
        if reads:
            self._record(Unguarded(*of, reads))
        for stale in entry.watched.stale.values():
            read = stale.read
            self._record(StaleValue(*of, read.kind, read.text, read.value, stale.now, stale.calls, _line(read), stale.seen))


def _line(read: Read) -> Location | None:
    return user_location(of_parts(read.stack)) if read.stack is not None else None


def _unguarded(end: CompileEnd) -> tuple[Read, ...]:
    """Return the reads for which there is no guard of the same name; values of Python's own modules are left out."""
    guarded = end.guarded()
    members = {match["name"] for name in guarded if (match := _MEMBER.search(name)) is not None}
    return tuple(read for read in end.reads if not _is_guarded(read, guarded, members) and not _is_of_python(read))


def _is_guarded(read: Read, guarded: frozenset[str], members: set[str]) -> bool:
    """Return whether a guard watches the value, judged by its name: `C.scale` may be guarded as `dict(C.__dict__)['scale']`."""
    if read.kind == "guard":
        return False
    name = read.source or read.text
    match = _MEMBER.search(name)
    return name in guarded or (match is not None and match["name"] in members)


def _is_of_python(read: Read) -> bool:
    """Return whether a read is of no interest unless its value changes: of code and objects of Python and torch."""
    if read.kind == "builtin" or read.text.endswith(".__call__"):
        return True
    if read.kind == "function":
        return read.file is None or owner_of_file(read.file).kind != "user"
    if read.value == REGISTERED:
        return True
    return read.text.startswith("G['__import_") and not (read.kind == "guard" and _CONSTANT.match(read.value))
