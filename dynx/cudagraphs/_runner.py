"""What stands where a compiled graph would: finds the recording for a call, or makes one."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from typing import Any
from weakref import WeakSet

from dynx._trace.userline import levels_to_the_user
from dynx.cudagraphs._config import Config
from dynx.cudagraphs._recording import Call, Recording
from dynx.cudagraphs._stats import count_skip, new_counts
from dynx.cudagraphs._telling import tell
from dynx.cudagraphs.runtime import Runtime
from dynx.errors import CaptureError, CaptureFailed, DynxWarning
from dynx.records.cudagraphs import GraphPlan, Skip

Key = tuple[Any, ...]

_runners: WeakSet[Runner] = WeakSet()


def close_all() -> None:
    """Give back what all recordings hold; graphs that are called again record anew."""
    for each in tuple(_runners):
        each.close()


class Runner:
    """Runs a graph once as it is, then from recordings; one for each set of numbers and of addresses that do not change."""

    def __init__(self, call: Call, plan: GraphPlan, config: Config, runtime: Runtime) -> None:
        self._call, self._plan, self._config, self._runtime = call, plan, config, runtime
        self._numbers, self._still = plan.indices("scalar"), plan.indices("static", "managed")
        self._recordings: OrderedDict[Key, list[Recording]] = OrderedDict()  # used last stands last
        self._is_warm = False
        self._cannot = False
        self._last: Recording | None = None
        self._boxed_call = True  # takes its arguments in a list, which it empties; torch copies the attribute to its wrappers
        self._alone = Lock()
        self.counts = new_counts()
        _runners.add(self)

    def __call__(self, args: list[Any]) -> Sequence[Any]:
        with self._alone:  # another thread would copy its inputs to the same place
            return self._run(args)

    def _run(self, args: list[Any]) -> Sequence[Any]:
        recording = self._last
        if recording is None or not recording.fits(args):
            recording = self._last = self._find(args)
            if recording is None:
                self.counts.uncaptured += 1
                return self._runtime.warm_up(lambda: self._call(args))
        counts = self.counts
        counts.replays += 1
        counts.copies += recording.copies
        counts.bytes_copied += recording.bytes_copied
        return recording.run(args)

    def _find(self, args: list[Any]) -> Recording | None:
        """Find a recording, or make one; None on the first call, and where there can be none."""
        if not self._is_warm or self._cannot:
            self._is_warm = True
            return None
        try:
            return self._recording(self._key(args), args)
        except CaptureFailed as error:
            self._cannot = True
            count_skip(skip := Skip(str(error)))
            tell(f"the {self._plan.part} graph runs uncaptured: {skip.reason}", self._config)
            return None

    def _key(self, args: list[Any]) -> Key:
        return (*(args[index] for index in self._numbers), *(args[index].data_ptr() for index in self._still))

    def _recording(self, key: Key, args: list[Any]) -> Recording | None:
        """Find a recording whose last results nobody needs any more, or make another; None where there is no room."""
        known = self._recordings.setdefault(key, [])
        self._recordings.move_to_end(key)
        free = next((each for each in known if each.fits(args)), None)
        if free is not None:
            return free
        if sum(map(len, self._recordings.values())) >= self._config.max_recordings and not self._make_room():
            return None
        recording = Recording(self._call, self._plan, self._config, self._runtime, args)
        self.counts.recordings += 1
        known.append(recording)
        return recording

    def _make_room(self) -> bool:
        """Do what `on_limit` says; tells whether there is room now."""
        limit, on_limit = self._config.max_recordings, self._config.on_limit
        if on_limit == "lru" and self._forget_oldest():
            return True
        text = f"the {self._plan.part} graph needs more than {limit} recordings: {self._what_changes()}"
        if on_limit == "error":
            raise CaptureError(f"{text}\n  give a larger max_recordings, or on_limit='eager'")
        warnings.warn(f"{text}\n  other calls run uncaptured", DynxWarning, stacklevel=levels_to_the_user())
        return False

    def _forget_oldest(self) -> bool:
        for known in self._recordings.values():
            for each in known:
                if not each.is_pending:
                    known.remove(each)
                    each.close()
                    return True
        return False

    def _what_changes(self) -> str:
        """Name the inputs by which recordings differ."""
        names = [self._plan.inputs[index].name for index in (*self._numbers, *self._still)]
        columns = zip(names, zip(*self._recordings, strict=True), strict=True)
        return ", ".join(name for name, values in columns if len(set(values)) > 1) or "what they saved is still in use"

    def close(self) -> None:
        for each in (each for known in self._recordings.values() for each in known):
            each.close()
        self._recordings.clear()
        self._last, self._cannot = None, False
