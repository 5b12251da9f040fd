"""Pass each record to every listener."""

from __future__ import annotations

import warnings
from collections.abc import Callable

from dynx.errors import DynxWarning
from dynx.records import Location, Record, Trouble

Listener = Callable[[Record], None]
Starting = Callable[[str, Location], None]  # compile id and function of a compilation that begins

listeners: list[Listener] = []
start_listeners: list[Starting] = []


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
