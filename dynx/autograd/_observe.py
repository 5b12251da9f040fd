"""Pass a record of each capture of compiled autograd to a watch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dynx._handle import Handle
from dynx._torch.autograd.captures import Observation, RawCapture
from dynx._trace.dispatch import trouble
from dynx.autograd._records import Captures
from dynx.records.backward import BackwardCapture
from dynx.records.record import Record


class BackwardCaptures(Handle):
    """Passes a `BackwardCapture` to `record` when its graph runs first, and again, with the number of calls, at the end."""

    __slots__ = ("_called", "_captures", "_observation", "_record")

    def __init__(self, record: Callable[[Record], None]) -> None:
        self._record = record
        self._captures = Captures()
        self._called: list[tuple[RawCapture, BackwardCapture]] = []
        self._observation = Observation(self._add, self._pass_on, trouble)

    def remove(self) -> None:
        self._observation.remove()
        while self._called:
            raw, passed = self._called.pop(0)
            if raw.calls != passed.calls:
                self._record(replace(passed, calls=raw.calls))

    def _add(self, raw: RawCapture) -> None:
        self._captures.add(raw)
        raw.graph = None  # which may keep tensors alive

    def _pass_on(self, raw: RawCapture) -> None:
        passed = self._captures.record_of(raw)
        self._called.append((raw, passed))
        self._record(passed)
