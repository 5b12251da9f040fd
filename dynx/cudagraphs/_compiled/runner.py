"""Run a compiled graph: replay the recording that fits the call, or capture a new one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from threading import RLock, get_ident
from typing import Any

import torch

from dynx._torch.autograd.saved_tensors import hooks_are_set
from dynx.cudagraphs._compiled.address_changes import AddressWatch, SharedFacts
from dynx.cudagraphs._config import Config
from dynx.cudagraphs._graph.plan import with_changed_inputs
from dynx.cudagraphs._notices import warn_or_raise, why_uncaptured
from dynx.cudagraphs._recording.cache import Key, RecordingCache
from dynx.cudagraphs._recording.recording import Recording, layouts_of, numbers_of
from dynx.cudagraphs._recording.replayable import Call
from dynx.cudagraphs._runtime.capture_lock import trying_threads
from dynx.cudagraphs._runtime.interface import Runtime
from dynx.cudagraphs._stats import count_skip, count_uncaptured, skip_of_failure
from dynx.errors import CaptureFailed
from dynx.records.cudagraphs import GraphPlan


class Runner:
    """A compiled graph that runs uncaptured in its first call, and is then captured and replayed.

    A call gets another recording if it has new scalars, generators, addresses of static inputs (parameters and buffers) or of
    managed inputs (tensors in the memory of another recording), or new layouts that do not follow from the scalars.

    `call` is the compiled graph, as a function that takes its arguments in a list, and empties the list. With `has_own_pools`,
    each recording gets its own memory pool, since its results are read after other replays.
    """

    def __init__(
        self, call: Call, plan: GraphPlan, config: Config, runtime: Runtime, facts: SharedFacts, *, has_own_pools: bool = False
    ) -> None:
        self.call, self._config, self._runtime = call, config, runtime
        self._has_own_pools = has_own_pools or plan.part == "forward"  # the backward pass reads its results
        self._saves = plan.part == "forward" and not has_own_pools
        self._is_warm = False
        self._why_uncaptured = ""
        self._last: Recording | None = None
        self._addresses, self._address_watch = facts.addresses, AddressWatch(plan, facts.addresses)
        self.notes: list[str] = []
        self._lock = RLock()  # reentrant: an operator may call the compiled function
        self._unpatched_plan = plan if config.params == "patch" and plan.part == "inference" else None
        self._use(plan if self._unpatched_plan is None else _with_patched_params(plan))
        self._boxed_call = True  # takes arguments in a list and clears it; torch copies the attribute to wrappers
        self._is_capturing = runtime.is_capturing

    def __call__(self, args: list[Any]) -> Sequence[Any]:
        if self._is_capturing() or (trying_threads and get_ident() in trying_threads):  # part of an outer capture
            return self.call(args)
        with self._lock:  # another thread would copy its inputs to the same memory
            recording = self._last
            if recording is None or not recording.fits(args):
                self._last = None  # it may be closed to make room
                recording = self._last = self._find_or_record(args)
                if recording is None:
                    count_uncaptured()
                    return self._runtime.warm_up(lambda: self.call(args))
            outputs = recording.run(args)
            if self._saves and hooks_are_set():  # the hooks may keep saved tensors indefinitely
                for index in recording.saved:
                    outputs[index] = outputs[index].clone()
            args.clear()
            return outputs

    def replay_last(self, args: list[Any]) -> list[Any] | None:
        """Replay the recording that the previous call used, and return the results; None if it does not fit these arguments."""
        if self._is_capturing() or (trying_threads and get_ident() in trying_threads):
            return None
        with self._lock:
            recording = self._last
            return recording.run(args) if recording is not None and recording.fits(args) else None

    def close(self) -> None:
        """Close all recordings; a graph that is called again is recorded again."""
        self._cache.close()

    def _use(self, plan: GraphPlan) -> None:
        self.plan = plan
        self._numbers, self._fixed = plan.indices("scalar"), plan.indices("static", "managed")
        self._generators = plan.indices("generator")
        self._unknown_layouts = plan.unknown_layouts
        names = [plan.inputs[index].name for index in (*self._numbers, *self._fixed, *self._generators, *self._unknown_layouts)]
        self._cache = RecordingCache[Recording](self._config, f"the {plan.part} graph", names, self._lock, self._forget)
        self._last = None

    @property
    def recordings(self) -> list[Recording]:
        return list(self._cache)

    def _find_or_record(self, args: list[Any]) -> Recording | None:
        """Return a recording that fits the call, captured now if there is none; None if the call has to run uncaptured.

        The first call runs uncaptured, to warm up, and so do all calls of a graph that cannot be captured.
        """
        if not self._is_warm:
            self._is_warm = True
            return None
        if self._why_uncaptured:
            if self._config.or_error:
                warn_or_raise(self._why_uncaptured, self._config)
            return None
        try:
            found = self._cache.find(self._key(args), lambda recording: recording.fits(args))
            if found is not None or not self._runtime.is_warmed_up():
                return found
            if self._unpatched_plan is None and (plan := self._address_watch.note(args)) is not self.plan:
                self._cache.close_free()
                self._use(plan)
            recording = self._cache.add(self._key(args), lambda: self._record(args))
            if self._unpatched_plan is not None and recording is not None and recording.why_not_patched:
                self.notes.append(f"parameters with a new address are recorded again: {recording.why_not_patched}")
                plan, self._unpatched_plan = self._unpatched_plan, None
                self._cache.close()
                self._use(plan)
                return self._find_or_record(args)
            return recording
        except CaptureFailed as error:
            self._why_uncaptured = why_uncaptured(f"the {self.plan.part} graph", count_skip(skip_of_failure(error)))
            warn_or_raise(self._why_uncaptured, self._config)
            return None

    def _key(self, args: list[Any]) -> Key:
        numbers, addresses = numbers_of(args, self._numbers), [args[index].data_ptr() for index in self._fixed]
        generators = [id(args[index]) for index in self._generators]  # which the recording keeps alive
        return (*numbers, *addresses, *generators, *layouts_of(args, self._unknown_layouts))

    def _record(self, args: list[Any]) -> Recording:
        pool = self._runtime.new_pool(f"{self.plan.part} graph") if self._has_own_pools else None
        recording = Recording(self._call_without_passed, self._plan_for(args), self._config, self._runtime, args, pool)
        self._addresses.update(output.data_ptr() for output in recording.kept_outputs if isinstance(output, torch.Tensor))
        if self._config.verify:
            recording.verify(lambda args: self.call(list(args)), list, f"the {self.plan.part} graph", self._config.verify)
        return recording

    def _plan_for(self, args: list[Any]) -> GraphPlan:
        """Return the runner's plan, with layout checks added for saved tensors that are not in the memory of a recording.

        Hooks on saved tensors may have replaced these by tensors with another layout.
        """
        outside = {index for index in self.plan.indices("managed") if args[index].data_ptr() not in self._addresses}
        return with_changed_inputs(self.plan, outside, has_known_layout=False) if outside else self.plan

    def _call_without_passed(self, args: list[Any]) -> Sequence[Any]:
        """Call the graph; replace outputs that are passed-through inputs by None: each replay returns its own call's inputs."""
        outputs = list(self.call(args))
        for index, _ in self.plan.passed:
            outputs[index] = None
        return outputs

    def _forget(self) -> None:
        self._last, self._why_uncaptured = None, ""


def _with_patched_params(plan: GraphPlan) -> GraphPlan:
    """Return the plan with parameters and buffers as dynamic inputs, whose pointers are set before each replay."""
    why = "a parameter or buffer, whose pointer is set before each replay"
    return replace(with_changed_inputs(plan, plan.indices("static"), kind="dynamic", why=why), patches_params=True)
