"""Record what traced code reads, while a handle is installed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from weakref import ref

from dynx._handle import Handle
from dynx._torch.capabilities import hook_point
from dynx._torch.hooks import After, OnError, is_retracing, subscribe, wrap
from dynx._torch.unguarded.calls import record_call
from dynx._torch.unguarded.dropped import record_dropped
from dynx._torch.unguarded.frames import record_frame
from dynx._torch.unguarded.read import Read, Reads, reads_of


class Recording(Handle):
    """The installed hooks. What a hook raises goes to `on_error`, with the name of its hook point."""

    def __init__(self, on_error: OnError) -> None:
        self._on_error = on_error
        self._current = threading.local()
        self._is_removed = False
        self._hooks: list[Handle] = []
        try:
            self._hooks.append(subscribe(hook_point("frame_run"), self._on_frame, on_error=on_error))
            self._hooks.append(wrap(hook_point("traced_call"), self._with_calls, passes_on=True))
            self._hooks.append(wrap(hook_point("dropped_guard"), self._with_dropped, passes_on=True))
        except BaseException:
            self.remove()
            raise

    def remove(self) -> None:
        self._is_removed = True
        while self._hooks:
            self._hooks.pop().remove()

    def _on_frame(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> After | None:
        reads = reads_of(args[0].output)
        reads.on_error = self._on_error
        self._current.reads = ref(reads)  # which has the variables of the call
        record_frame(args[0])
        return None

    def _with_calls(self, original: Callable[..., None]) -> Callable[..., None]:
        def call_function(tx: Any, function: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
            original(tx, function, args, kwargs)
            if not self._is_removed and not is_retracing():
                try:
                    record_call(tx, function, args, tx.stack[-1])
                except Exception as error:  # noqa: BLE001 - a failing observer must not stop the trace
                    self._on_error("traced_call", error)

        return call_function

    def _with_dropped(self, original: Callable[[Any], bool]) -> Callable[[Any], bool]:
        def is_from_skip_guard_source(source: Any) -> bool:
            is_dropped = original(source)
            reads: Reads | None = getattr(self._current, "reads", lambda: None)()
            if is_dropped and reads is not None and not self._is_removed and not is_retracing():
                try:
                    record_dropped(reads, source)
                except Exception as error:  # noqa: BLE001 - a failing observer must not stop the trace
                    self._on_error("dropped_guard", error)
            return is_dropped

        return is_from_skip_guard_source


def reads_of_attempt(tracer_output: Any) -> tuple[Read, ...]:
    """Return the reads of a finished tracing attempt. Torch: `DynamoTracerOutput.output_graph`."""
    reads: Reads | None = getattr(tracer_output.output_graph, "dynx_reads", None)
    return () if reads is None else reads.of_constants()
