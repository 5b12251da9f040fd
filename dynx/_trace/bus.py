"""`listen`: register callbacks for the records of compilations; torch is hooked as long as there is at least one callback.

Records of a compilation are buffered and emitted when it ends, so a listener never mistakes a trace attempt that was
discarded for the one that was committed.
"""

from __future__ import annotations

import threading

from dynx._handle import Handle
from dynx._torch.capabilities import HOOK_POINTS, hook_point
from dynx._torch.hooks import Subscription, subscribe
from dynx._trace.dispatch import (
    EndListener,
    Listener,
    StartListener,
    emit,
    end_listeners,
    listeners,
    listeners_to_recompiles,
    start_listeners,
)
from dynx._trace.subscribers import SUBSCRIBERS, clear_facts
from dynx.errors import UnsupportedTorch
from dynx.records import Trouble

_lock = threading.RLock()
_subscriptions: list[Subscription] = []


class Listening(Handle):
    """The handle of a registered listener: `remove()` unregisters it, and removes the hooks from torch if no other is left."""

    __slots__ = ("_listener", "_on_end", "_on_start")

    def __init__(self, listener: Listener, on_start: StartListener | None, on_end: EndListener | None) -> None:
        self._listener, self._on_start, self._on_end = listener, on_start, on_end

    def remove(self) -> None:
        with _lock:
            if self._on_start in start_listeners:
                start_listeners.remove(self._on_start)
            if self._on_end in end_listeners:
                end_listeners.remove(self._on_end)
            if self._listener in listeners_to_recompiles:
                listeners_to_recompiles.remove(self._listener)
            if self._listener in listeners:
                listeners.remove(self._listener)
                if not listeners:
                    _detach()


def listen(
    listener: Listener,
    *,
    on_start: StartListener | None = None,
    on_end: EndListener | None = None,
    explains_recompiles: bool = True,
) -> Listening:
    """Call `listener`, on the thread that compiles, with every record until `remove()` of the returned handle.

    Args:
        listener: Called with each record when its compilation has ended. An exception in it becomes a `Trouble` record.
        on_start: Called when a compilation begins, with its compile id and the location of the function.
        on_end: Called when a compilation ends, before its records are emitted, with a `CompileEnd`.
        explains_recompiles: Whether the listener uses the expected and actual values of a `Recompile`; False is faster.

    Returns:
        The handle whose `remove` unregisters all three callbacks.
    """
    with _lock:
        listeners.append(listener)
        if explains_recompiles:
            listeners_to_recompiles.append(listener)
        if on_start is not None:
            start_listeners.append(on_start)
        if on_end is not None:
            end_listeners.append(on_end)
        if len(listeners) == 1:
            _attach()
        return Listening(listener, on_start, on_end)


def _attach() -> None:
    """Install the hooks of `HOOK_POINTS`; then emit a `Trouble` record for each required hook point that torch lacks."""
    missing: list[Trouble] = []
    for point in HOOK_POINTS:
        try:
            _subscriptions.append(subscribe(point, SUBSCRIBERS[point.name], on_error=_report))
        except UnsupportedTorch:
            if not point.optional:
                missing.append(Trouble(point.purpose, f"this torch has no {point.path}"))
    for trouble in missing:
        emit(trouble)


def _detach() -> None:
    while _subscriptions:
        _subscriptions.pop().remove()
    clear_facts()


def _report(hook: str, error: BaseException) -> None:
    emit(Trouble(hook_point(hook).purpose, f"{type(error).__name__}: {error}"))
