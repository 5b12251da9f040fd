"""What stands where a compiled graph would: finds the recording for a call, or makes one."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Any

from dynx.cudagraphs._config import Config
from dynx.cudagraphs._recording import Call, Recording
from dynx.cudagraphs._recordings import Key, Recordings
from dynx.cudagraphs._stats import count_skip, count_uncaptured
from dynx.cudagraphs._telling import tell
from dynx.cudagraphs.runtime import Runtime
from dynx.errors import CaptureFailed
from dynx.records.cudagraphs import GraphPlan, Skip


class Runner:
    """Runs a graph once as it is, then from recordings; one for each set of numbers and of addresses that do not change."""

    def __init__(self, call: Call, plan: GraphPlan, config: Config, runtime: Runtime, *, has_own_pools: bool = False) -> None:
        self._call, self._plan, self._config, self._runtime = call, plan, config, runtime
        self._has_own_pools = has_own_pools or plan.part == "forward"  # its results are read after other replays
        self._numbers, self._still = plan.indices("scalar"), plan.indices("static", "managed")
        names = [plan.inputs[index].name for index in (*self._numbers, *self._still)]
        self._recordings = Recordings(config, f"the {plan.part} graph", names, self._forget)
        self._is_warm = False
        self._cannot = False
        self._last: Recording | None = None
        self._boxed_call = True  # takes its arguments in a list, which it empties; torch copies the attribute to its wrappers
        self._alone = Lock()

    def __call__(self, args: list[Any]) -> Sequence[Any]:
        with self._alone:  # another thread would copy its inputs to the same place
            recording = self._last
            if recording is None or not recording.fits(args):
                recording = self._last = self._find(args)
                if recording is None:
                    count_uncaptured()
                    return self._runtime.warm_up(lambda: self._call(args))
            outputs = recording.run(args)
            args.clear()
            return outputs

    @property
    def recordings(self) -> list[Recording]:
        return list(self._recordings)

    def _find(self, args: list[Any]) -> Recording | None:
        """Find a recording, or make one; None on the first call, and where there can be none."""
        if not self._is_warm or self._cannot:
            self._is_warm = True
            return None
        try:
            return self._recordings.find(self._key(args), lambda each: each.fits(args), lambda: self._record(args))
        except CaptureFailed as error:
            self._cannot = True
            count_skip(skip := Skip(str(error)))
            tell(f"the {self._plan.part} graph runs uncaptured: {skip.reason}", self._config)
            return None

    def _key(self, args: list[Any]) -> Key:
        return (*(args[index] for index in self._numbers), *(args[index].data_ptr() for index in self._still))

    def _record(self, args: list[Any]) -> Recording:
        pool = self._runtime.new_pool() if self._has_own_pools else None
        return Recording(self._call, self._plan, self._config, self._runtime, args, pool)

    def _forget(self) -> None:
        self._last, self._cannot = None, False
