"""Pass records to the listeners that `bus.listen` registered."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any, NamedTuple

from dynx._torch.retracing.retrace import Frame
from dynx._torch.tracing.stack import StackParts
from dynx._torch.unguarded.read import Read
from dynx.errors import DynxWarning
from dynx.records import Location, Record, Trouble

Listener = Callable[[Record], None]
StartListener = Callable[[str, Location], None]  # takes the compile id and the location of the function


class CompileEnd(NamedTuple):
    """A compilation that has just ended. It keeps objects of torch alive, so an `on_end` callback must not store it."""

    generation: int
    id: str
    location: Location
    code: CodeType
    guards: Any  # torch's `GuardManagerWrapper`; None if nothing was compiled
    requests: Mapping[str, list[StackParts]]  # the stacks that requested guards, by the name of the source
    globals: Mapping[str, Any]
    reads: tuple[Read, ...]  # what the code reads, if something records reads
    guarded: Callable[[], frozenset[str]]  # the values that guards watch, by the names of their sources


EndListener = Callable[[CompileEnd], None]
FrameDone = Callable[[Sequence[Record], Any], None]  # takes the records of the compilation, and its guards or None
FrameListener = Callable[[Frame, int, str], FrameDone]  # takes the frame, the generation and the compile id


@dataclass(frozen=True, slots=True, eq=False)
class Callbacks:
    """The arguments of one call of `bus.listen`; the docstring of `listen` describes them."""

    listener: Listener
    on_start: StartListener | None
    on_end: EndListener | None
    explains_recompiles: bool
    on_frame: FrameListener | None = None


registered: list[Callbacks] = []


def emit(record: Record) -> None:
    """Pass a record to every listener; an exception in one of them becomes a `Trouble` record."""
    for callbacks in tuple(registered):
        try:
            callbacks.listener(record)
        except Exception as error:  # noqa: BLE001 - a failing listener must not stop the other listeners, or the program
            if not isinstance(record, Trouble):
                emit(Trouble("a listener", f"{type(error).__name__}: {error}"))


def notify(what: str, callback: Callable[..., None], *args: object) -> None:
    """Call a callback that `bus.listen` registered; if it raises, emit a `Trouble` record that says what failed (`what`)."""
    try:
        callback(*args)
    except Exception as error:  # noqa: BLE001 - a failing observer must not stop the compilation
        emit(Trouble(what, f"{type(error).__name__}: {error}"))


def trouble(what: str, error: BaseException) -> None:
    """Emit a `Trouble` record that a part of dynx (`what`) failed. Also issue a warning, as there may be no listener."""
    emit(Trouble(what, f"{type(error).__name__}: {error}"))
    text = f"dynx failed in its {what}: {type(error).__name__}: {error}; the program is not affected"
    warnings.warn(text, DynxWarning, stacklevel=2)
