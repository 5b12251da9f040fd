"""What stands where a compiled graph would: finds the recording for a call, or makes one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from threading import RLock
from typing import Any

import torch

from dynx._torch.autograd.saved_tensors import hooks_are_set
from dynx.cudagraphs._compiled.address_changes import Moves, Shared
from dynx.cudagraphs._config import Config
from dynx.cudagraphs._notices import tell
from dynx.cudagraphs._recording.cache import Key, Recordings
from dynx.cudagraphs._recording.recording import Call, Recording, layouts_of, numbers_of
from dynx.cudagraphs._runtime.interface import Runtime
from dynx.cudagraphs._stats import count_skip, count_uncaptured, failure
from dynx.errors import CaptureFailed
from dynx.records.cudagraphs import GraphPlan


class Runner:
    """Runs a graph once as it is, then from recordings; one for each set of numbers and of addresses that do not change."""

    def __init__(
        self, call: Call, plan: GraphPlan, config: Config, runtime: Runtime, shared: Shared, *, has_own_pools: bool = False
    ) -> None:
        self.call, self._config, self._runtime = call, config, runtime
        self._has_own_pools = has_own_pools or plan.part == "forward"  # its results are read after other replays
        self._saves = plan.part == "forward" and not has_own_pools
        self._is_warm = False
        self._why_not = ""
        self._last: Recording | None = None
        self._places, self._moves = shared.places, Moves(plan, shared.places)
        self.notes: list[str] = []
        self._told = plan if config.params == "patch" and plan.part == "inference" else None
        self._use(plan if self._told is None else _telling(plan))
        self._boxed_call = True  # takes its arguments in a list, which it empties; torch copies the attribute to its wrappers
        self._alone = RLock()  # an operator may call the compiled function
        self._is_captured = runtime.is_capturing

    def __call__(self, args: list[Any]) -> Sequence[Any]:
        if self._is_captured():  # it becomes a part of what is captured
            return self.call(args)
        with self._alone:  # another thread would copy its inputs to the same place
            recording = self._last
            if recording is None or not recording.fits(args):
                self._last = None  # it may be closed to make room
                recording = self._last = self._find(args)
                if recording is None:
                    count_uncaptured()
                    return self._runtime.warm_up(lambda: self.call(args))
            outputs = recording.run(args)
            if self._saves and hooks_are_set():  # they may keep what is saved, or only some of it, for as long as they like
                for index in recording.saved:
                    outputs[index] = outputs[index].clone()
            args.clear()
            return outputs

    def replay_last(self, args: list[Any]) -> list[Any] | None:
        """Replay the recording that was used last; None where it does not fit."""
        if self._is_captured():
            return None
        with self._alone:
            recording = self._last
            return recording.run(args) if recording is not None and recording.fits(args) else None

    def _use(self, plan: GraphPlan) -> None:
        self.plan = plan
        self._numbers, self._still = plan.indices("scalar"), plan.indices("static", "managed")
        self._untold = plan.untold
        names = [plan.inputs[index].name for index in (*self._numbers, *self._still, *self._untold)]
        self._recordings = Recordings(self._config, f"the {plan.part} graph", names, self._forget)
        self._last = None

    @property
    def recordings(self) -> list[Recording]:
        return list(self._recordings)

    def _find(self, args: list[Any]) -> Recording | None:
        """Find a recording, or make one; None on the first call, and where there can be none."""
        if not self._is_warm:
            self._is_warm = True
            return None
        if self._why_not:
            if self._config.or_error:
                tell(self._why_not, self._config)
            return None
        try:
            found = self._recordings.find(self._key(args), lambda each: each.fits(args))
            if found is not None or not self._runtime.is_warm():
                return found
            if self._told is None and (plan := self._moves.note(args)) is not self.plan:
                self._recordings.close_free()
                self._use(plan)
            recording = self._recordings.add(self._key(args), lambda: self._record(args))
            if self._told is not None and recording is not None and recording.why_not_patched:
                self._stop_telling(recording)
                return self._find(args)
            return recording
        except CaptureFailed as error:
            skip = count_skip(failure(error))
            self._why_not = f"the {self.plan.part} graph runs uncaptured: {skip.reason}\n  {skip.advice}"
            tell(self._why_not, self._config)
            return None

    def _key(self, args: list[Any]) -> Key:
        numbers, places = numbers_of(args, self._numbers), [args[index].data_ptr() for index in self._still]
        return (*numbers, *places, *layouts_of(args, self._untold))

    def _record(self, args: list[Any]) -> Recording:
        pool = self._runtime.new_pool() if self._has_own_pools else None
        config = self._config if self._told is None else replace(self._config, inputs="patch")
        recording = Recording(self._without_passed, self._plan_for(args), config, self._runtime, args, pool)
        self._places.update(each.data_ptr() for each in recording.also if isinstance(each, torch.Tensor))
        return recording

    def _plan_for(self, args: list[Any]) -> GraphPlan:
        """Have the layouts of saved tensors checked that do not lie in recordings: hooks may have made them anew."""
        elsewhere = {index for index in self.plan.indices("managed") if args[index].data_ptr() not in self._places}
        if not elsewhere:
            return self.plan
        inputs = (replace(each, is_told=False) if index in elsewhere else each for index, each in enumerate(self.plan.inputs))
        return replace(self.plan, inputs=tuple(inputs))

    def _stop_telling(self, recording: Recording) -> None:
        """Have parameters read where they lie from now on, since a graph cannot be told where that is."""
        assert self._told is not None
        self.notes.append(f"parameters that move are recorded anew: {recording.why_not_patched}")
        plan, self._told = self._told, None
        self._recordings.close()
        self._use(plan)

    def _without_passed(self, args: list[Any]) -> Sequence[Any]:
        outputs = list(self.call(args))
        for index, _ in self.plan.passed:
            outputs[index] = None
        return outputs

    def _forget(self) -> None:
        self._last, self._why_not = None, ""


def _telling(plan: GraphPlan) -> GraphPlan:
    """Have a graph told where its parameters are on each call, as it is told of other inputs."""
    why = "a parameter or buffer: the graph is told where"
    inputs = (replace(each, kind="dynamic", why=why) if each.kind == "static" else each for each in plan.inputs)
    return replace(plan, inputs=tuple(inputs))
