"""Pass a record of each capture of compiled autograd to a watch."""

from __future__ import annotations

from collections.abc import Callable

from dynx._handle import Handle
from dynx._torch.autograd.captures import Observation, RawCapture
from dynx._trace.dispatch import trouble
from dynx.autograd._records import Captures
from dynx.records.backward import BackwardCapture
from dynx.records.record import Record


class BackwardCaptures(Handle):
    """Passes a `BackwardCapture` to `record` when its graph runs first, and again, with the number of calls, at the end."""

    __slots__ = ("_captures", "_observation", "_passed", "_record")

    def __init__(self, record: Callable[[Record], None]) -> None:
        self._record = record
        self._captures = Captures()
        self._passed: dict[int, BackwardCapture] = {}
        self._observation = Observation(self._add, self._pass_on, trouble)

    def remove(self) -> None:
        self._observation.remove()
        for index in range(len(self._captures)):
            final = self._captures.record(index)
            if final != self._passed.get(index):
                self._passed[index] = final
                self._record(final)

    def _add(self, raw: RawCapture) -> None:
        self._captures.add(raw)
        raw.graph = None  # which may keep tensors alive

    def _pass_on(self, raw: RawCapture) -> None:
        index = self._captures.index_of(raw)
        self._passed[index] = self._captures.record(index)
        self._record(self._passed[index])
