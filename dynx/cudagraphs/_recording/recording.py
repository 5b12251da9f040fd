"""One captured graph, with the memory that its inputs are copied to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from dynx._torch.ops.cuda_graphs import address_check
from dynx._torch.ops.liveness import weak_tensor
from dynx.cudagraphs._config import Config
from dynx.cudagraphs._recording.aliased_outputs import Run, View, handing_on, views_among
from dynx.cudagraphs._recording.inputs import FEW, Staging, is_plain, reading, staging
from dynx.cudagraphs._recording.outputs import Results
from dynx.cudagraphs._runtime.interface import Captured, Runtime
from dynx.cudagraphs._runtime.memcpy import CopiesNotFound
from dynx.cudagraphs._runtime.pointer_scan import NotPatchable
from dynx.cudagraphs._stats import Tally, count_recording
from dynx.records.cudagraphs import GraphPlan, GraphRecorded

Call = Callable[[list[Any]], Sequence[Any]]

_are_at = address_check()


class Recording:
    """Replays what a graph does with inputs at these addresses and these numbers.

    Recordings whose results are read after others were replayed need a `pool` of their own.
    """

    def __init__(
        self,
        call: Call,
        plan: GraphPlan,
        config: Config,
        runtime: Runtime,
        args: Sequence[Any],
        pool: Any = None,
    ) -> None:
        begin = time.perf_counter()
        self._is_for = _matching(plan, args)
        with torch.inference_mode(False), torch.no_grad():  # what is made here is used outside of inference mode too
            # aliases: whether the tensors of the caller are still in use tells when a recording is free
            given = [each.detach() if isinstance(each, torch.Tensor) else each for each in args]
            made = _captured(call, plan, config, runtime, given, pool)
        self.why_not_patched = made.why_not_patched
        self.uses_arguments = bool(made.staged.copied or made.views)
        self._token = made.results.token(made.captured.outputs)
        self.saved = _saved(made.captured.outputs, plan, args)
        by_hand = [made.inputs[index] for index in plan.indices("dynamic") if index not in made.staged.in_graph]
        self.nbytes = _size_of([*by_hand, *(() if made.is_released else made.captured.outputs)])
        seconds, staged = time.perf_counter() - begin, made.staged
        self.tally = count_recording(
            GraphRecorded(plan.part, seconds, staged.copied, staged.nbytes, self.nbytes, time.time() - seconds)
        )
        self._run = _running(made, self.tally)
        run = self._run if self._token is None else self._run_and_wait
        views = [*made.views, *(View(index, given, None) for index, given in plan.passed)]
        self.run = handing_on(views, run) if views else run
        self.captured = [(plan.part, made.captured)]
        self.close = made.captured.close
        self.also: Sequence[torch.Tensor] = made.captured.outputs[plan.user_outputs :]
        self.held: Any = None  # what must live as long as the recording
        self._pending: Any = None

    def fits(self, args: Sequence[Any]) -> bool:
        """Tell whether numbers and addresses are those of a call, and nobody needs the last results any more."""
        return (self._pending is None or self._pending.expired()) and self._is_for(args)

    @property
    def is_pending(self) -> bool:
        """Whether a backward pass will still read what the last replay saved."""
        return self._pending is not None and not self._pending.expired()

    def _run_and_wait(self, args: Sequence[Any]) -> list[Any]:
        assert self._token is not None
        outputs = self._run(args)
        self._pending = weak_tensor(outputs[self._token])
        return outputs


def _saved(outputs: Sequence[Any], plan: GraphPlan, args: Sequence[Any]) -> list[int]:
    """Give the results for the backward pass that lie in the recording, not in parameters."""
    elsewhere = {args[index].untyped_storage().data_ptr() for index in plan.indices("static")}
    tensors = ((index, each) for index, each in enumerate(outputs) if isinstance(each, torch.Tensor))
    is_here = plan.part == "forward"
    return [
        index
        for index, each in tensors
        if is_here and index >= plan.user_outputs and each.untyped_storage().data_ptr() not in elsewhere
    ]


def _size_of(values: Iterable[Any]) -> int:
    """Count the bytes of memory that tensors lie in."""
    storages = (each.untyped_storage() for each in values if isinstance(each, torch.Tensor))
    return sum({each.data_ptr(): each.nbytes() for each in storages}.values())


def _matching(plan: GraphPlan, args: Sequence[Any]) -> Callable[[Sequence[Any]], bool]:
    """Give what tells whether numbers and addresses are those of a call."""
    still, numbers = list(plan.indices("static", "managed")), plan.indices("scalar")
    addresses = [each.data_ptr() if isinstance(each, torch.Tensor) else None for each in args]
    expected = numbers_of(args, numbers)
    if untold := plan.untold:
        layouts = layouts_of(args, untold)
        return lambda args: (
            _are_at(args, addresses, still) and numbers_of(args, numbers) == expected and layouts_of(args, untold) == layouts
        )
    if not numbers:
        return lambda args: _are_at(args, addresses, still)
    return lambda args: _are_at(args, addresses, still) and numbers_of(args, numbers) == expected


def numbers_of(args: Sequence[Any], indices: Sequence[int]) -> list[Any]:
    """Give numbers that are equal where they are the same: 0.0 is not -0.0, and NaN is NaN."""
    return [repr(each) if type(each) is float else each for each in [args[index] for index in indices]]


def layouts_of(args: Sequence[Any], indices: Sequence[int]) -> tuple[Any, ...]:
    return tuple((args[index].size(), args[index].stride()) for index in indices)


class _Made(NamedTuple):
    inputs: list[Any]
    staged: Staging
    captured: Captured
    results: Results
    views: list[View]  # of inputs, among the results
    why_not_patched: str = ""
    own: Sequence[tuple[int, int]] = ()  # memory of results that a caller may give back as an input, which is read where it is
    is_released: bool = False  # the memory of all results: other graphs of the pool use it too


def _captured(call: Call, plan: GraphPlan, config: Config, runtime: Runtime, given: Sequence[Any], pool: Any) -> _Made:
    """Capture a graph with memory of its own for inputs; "auto" copies by hand where CUDA does not take copies."""
    if config.inputs == "patch":
        return _reading(call, plan, config, runtime, given, pool)
    inputs = list(given)
    staged = staging(inputs, plan, config.inputs, runtime)
    is_in_graph = config.inputs != "copy" and runtime.copies_in_graph()
    results, views = Results(plan, config.outputs, few=FEW if is_in_graph else 0), list[View]()

    def function(copies: Sequence[torch.Tensor]) -> tuple[Any, ...]:
        for index, each in zip(staged.in_graph, copies, strict=True):
            inputs[index] = each
        return _without_views(call, list(inputs), given, plan, views)

    try:
        captured = runtime.capture(function, staged.sources, results.in_graph, pool)
    except CopiesNotFound:
        if config.inputs != "auto":
            raise
        return _captured(call, plan, replace(config, inputs="copy"), runtime, given, pool)
    may_release = plan.are_all_handed_out or bool(config.buckets)  # a function in Python may have kept them
    return _Made(inputs, staged, captured, results, views, is_released=may_release and _release(captured, results))


def _release(captured: Captured, results: Results) -> bool:
    """Let other graphs have the memory of results that the graph copies itself, where that is all there is."""
    outputs = [each for each in captured.outputs if isinstance(each, torch.Tensor)]
    handed = results.in_graph(captured.outputs)
    if len(handed) < len(outputs):
        return False
    captured.release(handed)
    return True


def _reading(call: Call, plan: GraphPlan, config: Config, runtime: Runtime, given: Sequence[Any], pool: Any) -> _Made:
    """Capture a graph that reads its inputs where a call has them; one of which that cannot be proven copies them."""
    dynamic = plan.indices("dynamic")

    def function(others: Sequence[Any]) -> tuple[Any, ...]:
        places = dict(zip(dynamic, others, strict=True))
        return _without_views(call, [places.get(index, each) for index, each in enumerate(given)], given, plan, views)

    results, views = Results(plan, config.outputs, few=FEW), list[View]()
    try:
        if not plan.is_pure:
            raise NotPatchable("it changes something, so it cannot be tried")
        for index in dynamic:
            if not is_plain(given[index]):
                raise NotPatchable(f"{plan.inputs[index].name} has gaps, the same memory twice, or may be conjugated")
        captured = runtime.capture_reading(function, [given[index] for index in dynamic], results.in_graph, pool)
    except NotPatchable as error:
        made = _captured(call, plan, replace(config, inputs="auto"), runtime, given, pool)
        return made._replace(why_not_patched=str(error))
    own = [] if config.outputs == "clone" else _ranges(captured.outputs)
    return _Made(list(given), reading(dynamic), captured, results, views, own=own)


def _ranges(outputs: Sequence[Any]) -> list[tuple[int, int]]:
    storages = [each.untyped_storage() for each in outputs if isinstance(each, torch.Tensor)]
    return list({each.data_ptr(): (each.data_ptr(), each.data_ptr() + each.nbytes()) for each in storages}.values())


def _lies_in(value: Any, ranges: Sequence[tuple[int, int]]) -> bool:
    return isinstance(value, torch.Tensor) and any(begin <= value.data_ptr() < end for begin, end in ranges)


def _without_views(call: Call, args: list[Any], given: Sequence[Any], plan: GraphPlan, views: list[View]) -> tuple[Any, ...]:
    """Call, and leave out the results for the user that lie in arguments, but not where autograd has to see them."""
    outputs = list(call(list(args)))
    is_theirs = plan.part != "backward" and not plan.is_differentiated  # gradients may lie in what the forward graph saved
    lasting = [
        mine if each.kind != "managed" and isinstance(mine, torch.Tensor) and mine.stride() == theirs.stride() else None
        for each, mine, theirs in zip(plan.inputs, args, given, strict=True)
    ]
    views[:] = views_among(outputs[: plan.user_outputs], lasting) if is_theirs else ()
    for each in views:
        outputs[each.result] = None
    return tuple(outputs)


def _running(made: _Made, tally: Tally) -> Run:
    """Give what does a replay, in as few steps as the recording needs."""
    stage, in_graph = made.staged.stage, made.staged.in_graph
    captured, set_sources = made.captured, made.captured.set_sources
    prepare, hand_out = made.results.handing_out(made.captured)

    def run(args: Sequence[Any]) -> list[Any]:
        tally.times += 1
        after = stage(args)
        if in_graph:
            set_sources([args[index] for index in in_graph])
        fresh = prepare()
        captured.replay()
        if after is not None:
            after()
        return hand_out(fresh)

    def run_on_inputs(args: Sequence[Any]) -> list[Any]:
        tally.times += 1
        set_sources(args)
        fresh = prepare()
        captured.replay()
        return hand_out(fresh)

    if made.own:

        def run_on_others(args: Sequence[Any]) -> list[Any]:
            return run([each.clone() if _lies_in(each, made.own) else each for each in args])

        return run_on_others
    is_simple = made.staged.is_done_by_graph and in_graph == tuple(range(len(made.inputs)))
    return run_on_inputs if is_simple else run
