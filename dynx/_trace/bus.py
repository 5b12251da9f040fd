"""`listen`: register callbacks for the records of compilations; torch is hooked as long as there is at least one callback.

Records of a compilation are buffered and emitted when it ends, so a listener never mistakes a trace attempt that was
discarded for the one that was committed.
"""

from __future__ import annotations

import threading

from dynx._handle import Handle
from dynx._torch.capabilities import HOOK_POINTS, hook_point
from dynx._torch.hooks import Subscription, subscribe
from dynx._torch.tracing.trace_rules import not_traced
from dynx._trace.dispatch import Callbacks, EndListener, FrameListener, Listener, StartListener, emit, registered
from dynx._trace.subscribers import SUBSCRIBERS, clear_facts
from dynx.errors import UnsupportedTorch
from dynx.records import Trouble

# a backward graph may be compiled in a captured backward pass, where Dynamo compiles each function that is called
_WHILE_DYNAMO_RUNS = ("backward_start", "backward_end")

_lock = threading.RLock()
_subscriptions: list[Subscription] = []


class Listening(Handle):
    """The handle of a registered listener: `remove()` unregisters it, and removes the hooks from torch if no other is left."""

    __slots__ = ("_callbacks",)

    def __init__(self, callbacks: Callbacks) -> None:
        self._callbacks = callbacks

    def remove(self) -> None:
        with _lock:
            if self._callbacks in registered:
                registered.remove(self._callbacks)
                if not registered:
                    _detach()


def listen(
    listener: Listener,
    *,
    on_start: StartListener | None = None,
    on_end: EndListener | None = None,
    explains_recompiles: bool = True,
    on_frame: FrameListener | None = None,
) -> Listening:
    """Call `listener`, on the thread that compiles, with every record until `remove()` of the returned handle.

    Args:
        listener: Called with each record when its compilation has ended. An exception in it becomes a `Trouble` record.
        on_start: Called when a compilation begins, with its compile id and the location of the function.
        on_end: Called when a compilation ends, before its records are emitted, with a `CompileEnd`.
        explains_recompiles: Whether the listener uses the expected and actual values in `Recompile` records; False is faster.
        on_frame: Called when a compilation begins, with its `Frame`, generation and compile id; returns a function that is
            called after its records are emitted, while the frame is still alive, with these records and the guards.

    Returns:
        The handle whose `remove` unregisters all callbacks.
    """
    with _lock:
        callbacks = Callbacks(listener, on_start, on_end, explains_recompiles, on_frame)
        registered.append(callbacks)
        if len(registered) == 1:
            _attach()
        return Listening(callbacks)


def _attach() -> None:
    """Install the hooks of `HOOK_POINTS`; then emit a `Trouble` record for each required hook point that torch lacks."""
    missing: list[Trouble] = []
    for point in HOOK_POINTS:
        try:
            before = SUBSCRIBERS[point.name]
            before = not_traced(before) if point.name in _WHILE_DYNAMO_RUNS else before
            _subscriptions.append(subscribe(point, before, on_error=_report))
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
