"""Pass each record to every listener."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from types import CodeType
from typing import Any, NamedTuple

from dynx._torch.tracing.stack import StackParts
from dynx.errors import DynxWarning
from dynx.records import Location, Record, Trouble

Listener = Callable[[Record], None]
Starting = Callable[[str, Location], None]  # compile id and function of a compilation that begins


class CompileEnd(NamedTuple):
    """A compilation that has just ended; holds objects of torch and must not outlive the callback."""

    generation: int
    id: str
    location: Location
    code: CodeType
    guards: Any  # torch's `GuardManagerWrapper`; None where nothing was compiled
    requests: Mapping[str, list[StackParts]]  # the stacks that asked for guards, by the name of the source


Ended = Callable[[CompileEnd], None]

listeners: list[Listener] = []
start_listeners: list[Starting] = []
end_listeners: list[Ended] = []


def emit(record: Record) -> None:
    for listener in tuple(listeners):
        try:
            listener(record)
        except Exception as error:  # noqa: BLE001 - one listener that fails must not stop the others, or the program
            if not isinstance(record, Trouble):
                emit(Trouble("a listener", f"{type(error).__name__}: {error}"))


def trouble(what: str, error: BaseException) -> None:
    """Record that a tool could not do its work, and warn: nobody may be watching."""
    emit(Trouble(what, f"{type(error).__name__}: {error}"))
    warnings.warn(f"{what}: {type(error).__name__}: {error}; the program is not affected", DynxWarning, stacklevel=2)
