"""The trace bus: listens to torch once, tells every listener what was committed.

Hooks are in place only while somebody listens. Records of a compilation are buffered and told when it ends, so a listener
never sees an attempt that was thrown away as if it had counted.
"""

from __future__ import annotations

import threading

from dynx._torch.capabilities import HOOK_POINTS, hook_point
from dynx._torch.hooks import Subscription, subscribe
from dynx._trace.dispatch import Ended, Listener, Starting, emit, end_listeners, listeners, start_listeners
from dynx._trace.subscribers import SUBSCRIBERS, forget
from dynx.errors import UnsupportedTorch
from dynx.records import Trouble

_lock = threading.RLock()
_subscriptions: list[Subscription] = []


class Listening:
    """A handle: `remove()` stops listening, and takes the hooks away with the last listener."""

    def __init__(self, listener: Listener, starting: Starting | None, ended: Ended | None) -> None:
        self._listener, self._starting, self._ended = listener, starting, ended

    def remove(self) -> None:
        with _lock:
            if self._starting in start_listeners:
                start_listeners.remove(self._starting)
            if self._ended in end_listeners:
                end_listeners.remove(self._ended)
            if self._listener in listeners:
                listeners.remove(self._listener)
                if not listeners:
                    _detach()


def listen(listener: Listener, *, starting: Starting | None = None, ended: Ended | None = None) -> Listening:
    """Call `listener` with every record from now on, on the thread that compiled.

    `starting` is called when a compilation begins, `ended` when it ends, before its records are passed on.
    """
    with _lock:
        listeners.append(listener)
        if starting is not None:
            start_listeners.append(starting)
        if ended is not None:
            end_listeners.append(ended)
        if len(listeners) == 1:
            _attach()
        return Listening(listener, starting, ended)


def _attach() -> None:
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
    forget()


def _report(hook: str, error: BaseException) -> None:
    emit(Trouble(hook_point(hook).purpose, f"{type(error).__name__}: {error}"))
