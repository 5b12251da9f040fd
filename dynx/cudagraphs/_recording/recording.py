"""One captured graph, with the memory that its inputs are copied to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any, NamedTuple
from weakref import finalize

import torch

from dynx._reading.user_location import location_of_call
from dynx._torch.ops.cuda_graphs import address_check, profiler_flags
from dynx._torch.ops.liveness import weak_tensor
from dynx.cudagraphs._config import Config
from dynx.cudagraphs._recording.aliased_outputs import OutputAlias, find_aliases, with_aliases
from dynx.cudagraphs._recording.inputs import StagedInputs, copyable_in_graph, read_in_place, stage_inputs
from dynx.cudagraphs._recording.outputs import Results
from dynx.cudagraphs._recording.replayable import Call
from dynx.cudagraphs._recording.staging import choose_staging
from dynx.cudagraphs._recording.verification import verified
from dynx.cudagraphs._runtime.interface import CapturedGraph, Run, Runtime
from dynx.cudagraphs._runtime.memcpy import CopiesNotFound
from dynx.cudagraphs._runtime.patching.pointer_scan import NotPatchable
from dynx.cudagraphs._stats import Tally, count_recording
from dynx.records.cudagraphs import GraphPlan, GraphRecorded, Part, Staging, StagingKind

Matches = Callable[[Sequence[Any]], bool]
_are_at = address_check()


class Recording:
    """One captured graph, which is replayed for calls with the same scalars and the same addresses of static inputs.

    A recording whose results are read after replays of other recordings needs a memory `pool` of its own. For a backward pass,
    `forward` is the captured forward pass, whose random numbers the backward pass may draw again.
    """

    def __init__(
        self,
        call: Call,
        plan: GraphPlan,
        config: Config,
        runtime: Runtime,
        args: Sequence[Any],
        pool: Any = None,
        forward: CapturedGraph | None = None,
    ) -> None:
        begin = time.perf_counter()
        self._matches = _predicate(plan, args)
        with torch.inference_mode(mode=False), torch.no_grad():  # tensors created here are used outside of inference mode too
            # aliases keep no saved tensor alive: a forward recording is replayed again only when those are freed
            aliases = [arg.detach() if isinstance(arg, torch.Tensor) else arg for arg in args]
            graph = _capture(call, plan, config, runtime, aliases, pool, forward)
        self.staging = graph.staging
        self.may_return_arguments = bool(graph.staged.copied or graph.aliases)
        self._token = graph.results.token(graph.captured.outputs)
        self.saved = _saved(graph.captured.outputs, plan, args)
        copied = [graph.inputs[index] for index in plan.indices("dynamic") if index not in graph.staged.in_graph]
        self.nbytes = _nbytes([*copied, *(() if graph.is_released else graph.captured.outputs)])
        seconds, staged = time.perf_counter() - begin, graph.staged
        self.tally = count_recording(
            GraphRecorded(plan.part, seconds, staged.copied, staged.nbytes, self.nbytes, time.time() - seconds, graph.staging)
        )
        self.name = _name(plan.part)
        run = _replayer(graph, self.tally, self.name)
        self._run = graph.captured.in_order(run, [arg for arg in copied if isinstance(arg, torch.Tensor)])
        run = self._run if self._token is None else self._run_and_wait
        aliases_of_args = [*graph.aliases, *(OutputAlias(result, argument, None) for result, argument in plan.passed)]
        self.run: Run = with_aliases(aliases_of_args, run) if aliases_of_args else run
        self.captured: list[tuple[Part, CapturedGraph]] = [(plan.part, graph.captured)]
        finalize(self, self.tally.release).atexit = False
        self.kept_outputs: Sequence[torch.Tensor] = graph.captured.outputs[plan.user_outputs :]
        self._returns_all = plan.returns_all_outputs
        self.held: Any = None
        self._pending: Any = None

    def verify(self, uncaptured: Call, memory: Callable[[], Sequence[Any]], what: str, times: int) -> None:
        kept = () if self._returns_all else self.kept_outputs
        self.run = verified(self.run, uncaptured, memory, what, times, kept)

    def close(self) -> None:
        self.captured[0][1].close()
        self.tally.release()

    @property
    def why_not_patched(self) -> str:
        return self.staging.why_not_patched

    def fits(self, args: Sequence[Any]) -> bool:
        """Return whether a call matches the capture (scalars, addresses, layouts), and no backward pass needs its memory."""
        return (self._pending is None or self._pending.expired()) and self._matches(args)

    @property
    def has_backward(self) -> bool:
        return self._token is not None

    @property
    def is_pending(self) -> bool:
        """Whether a backward pass may still read tensors that the last replay saved."""
        return self._pending is not None and not self._pending.expired()

    def _run_and_wait(self, args: Sequence[Any]) -> list[Any]:
        assert self._token is not None
        outputs = self._run(args)
        self._pending = weak_tensor(outputs[self._token])
        return outputs


def _saved(outputs: Sequence[Any], plan: GraphPlan, args: Sequence[Any]) -> list[int]:
    """Return the indices of results saved for the backward pass, except parameters, whose memory is not the recording's."""
    if plan.part != "forward":
        return []
    params = {args[index].untyped_storage().data_ptr() for index in plan.indices("static")}
    tensors = ((index, output) for index, output in enumerate(outputs) if isinstance(output, torch.Tensor))
    return [
        index for index, output in tensors if index >= plan.user_outputs and output.untyped_storage().data_ptr() not in params
    ]


def _nbytes(values: Iterable[Any]) -> int:
    """Return the total bytes of the tensors' storages; a shared storage counts once. Sparse tensors have none, and count 0."""
    tensors = (value for value in values if isinstance(value, torch.Tensor) and value.layout is torch.strided)
    storages = (tensor.untyped_storage() for tensor in tensors)
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def _predicate(plan: GraphPlan, args: Sequence[Any]) -> Matches:
    """Return a predicate on the inputs of a call: whether scalars, addresses, generators and layouts are those of `args`."""
    fixed, numbers, unknown = list(plan.indices("static", "managed")), plan.indices("scalar"), plan.unknown_layouts
    addresses = [arg.data_ptr() if isinstance(arg, torch.Tensor) else None for arg in args]
    generators = [(index, args[index]) for index in plan.indices("generator")]
    checks: list[Matches] = []
    if numbers:
        expected = numbers_of(args, numbers)
        checks.append(lambda args: numbers_of(args, numbers) == expected)
    if unknown:
        layouts = layouts_of(args, unknown)
        checks.append(lambda args: layouts_of(args, unknown) == layouts)
    if generators:
        checks.append(lambda args: all(args[index] is generator for index, generator in generators))
    if not checks:
        return lambda args: _are_at(args, addresses, fixed)
    if len(checks) == 1:  # without the loop: this runs in each call
        check = checks[0]
        return lambda args: _are_at(args, addresses, fixed) and check(args)
    return lambda args: _are_at(args, addresses, fixed) and all(check(args) for check in checks)


def numbers_of(args: Sequence[Any], indices: Sequence[int]) -> list[Any]:
    """Return the scalars at these indices of `args`, floats as text: then 0.0 differs from -0.0, and NaN equals NaN."""
    return [repr(number) if type(number) is float else number for number in [args[index] for index in indices]]


def layouts_of(args: Sequence[Any], indices: Sequence[int]) -> tuple[Any, ...]:
    """Return sizes and strides of the inputs at these indices."""
    return tuple((args[index].size(), args[index].stride()) for index in indices)


class _Graph(NamedTuple):
    """A captured graph, with its inputs and results, and how replays copy them."""

    inputs: list[Any]
    staged: StagedInputs
    captured: CapturedGraph
    results: Results
    aliases: list[OutputAlias]
    staging: Staging
    read_ranges: Sequence[tuple[int, int]] = ()  # memory of results that a caller may pass as an input, which is read in place
    is_released: bool = False  # other graphs of the pool may reuse the memory of the results


def _capture(
    call: Call, plan: GraphPlan, config: Config, runtime: Runtime, args: Sequence[Any], pool: Any, forward: CapturedGraph | None
) -> _Graph:
    """Capture a graph with inputs patched or copied as configured. If that fails, capture it with copies of the inputs."""
    failures: dict[StagingKind, str] = {}
    while True:
        staging = choose_staging(plan, config, runtime, args, failures)
        try:
            if staging.kind == "patch":
                return _capture_patched(call, plan, config, runtime, args, staging, pool)
            return _capture_with_copies(call, plan, config, runtime, args, staging, pool, forward)
        except NotPatchable as error:
            if "patch" in failures:
                raise
            failures["patch"] = str(error)
        except CopiesNotFound as error:
            if staging.kind == "patch" or "memcpy_node" in failures or config.inputs in ("copy", "memcpy_node"):
                raise
            failures["memcpy_node"] = str(error)


def _capture_with_copies(
    call: Call,
    plan: GraphPlan,
    config: Config,
    runtime: Runtime,
    args: Sequence[Any],
    staging: Staging,
    pool: Any,
    forward: CapturedGraph | None,
) -> _Graph:
    """Capture a graph with memory of its own, to which inputs are copied before a replay or by memcpy nodes of the graph."""
    inputs = list(args)
    in_graph = copyable_in_graph(args, plan) if staging.kind == "memcpy_node" else ()
    staged = stage_inputs(inputs, plan, in_graph)
    results = Results(plan, staging.outputs, clones_in_graph=staging.clones_in_graph)
    aliases: list[OutputAlias] = []

    def function(copies: Sequence[torch.Tensor]) -> tuple[Any, ...]:
        for index, copy in zip(staged.in_graph, copies, strict=True):
            inputs[index] = copy
        return _without_aliases(call, list(inputs), args, plan, aliases)

    generators = [args[index] for index in plan.indices("generator")]
    captured = runtime.capture(function, staged.sources, results.in_graph, pool, generators, forward)
    tensors = [output for output in captured.outputs if isinstance(output, torch.Tensor)]
    cloned = results.in_graph(captured.outputs)
    may_release = plan.returns_all_outputs or bool(config.buckets)  # otherwise a Python function may have kept results
    # if each replay returns clones of all results, other graphs of the pool may reuse the memory of the results
    if is_released := may_release and len(cloned) == len(tensors):
        captured.release(cloned)
    return _Graph(inputs, staged, captured, results, aliases, staging, is_released=is_released)


def _capture_patched(
    call: Call, plan: GraphPlan, config: Config, runtime: Runtime, args: Sequence[Any], staging: Staging, pool: Any
) -> _Graph:
    """Capture a graph whose input pointers are set before each replay. Raises NotPatchable if this cannot be verified."""
    dynamic = plan.indices("dynamic")
    results = Results(plan, staging.outputs, clones_in_graph=True)
    aliases: list[OutputAlias] = []

    def function(tensors: Sequence[Any]) -> tuple[Any, ...]:
        tensor_at = dict(zip(dynamic, tensors, strict=True))
        inputs = [tensor_at.get(index, arg) for index, arg in enumerate(args)]
        return _without_aliases(call, inputs, args, plan, aliases)

    captured = runtime.capture_patched(function, [args[index] for index in dynamic], results.in_graph, pool)
    read_ranges = [] if config.outputs == "clone" else _ranges(captured.outputs)
    return _Graph(list(args), read_in_place(dynamic), captured, results, aliases, staging, read_ranges=read_ranges)


def _ranges(outputs: Sequence[Any]) -> list[tuple[int, int]]:
    """Return the start and end address of each storage of the outputs."""
    storages = [output.untyped_storage() for output in outputs if isinstance(output, torch.Tensor)]
    by_address = {storage.data_ptr(): storage.data_ptr() + storage.nbytes() for storage in storages}
    return list(by_address.items())


def _is_within(value: Any, ranges: Sequence[tuple[int, int]]) -> bool:
    return isinstance(value, torch.Tensor) and any(begin <= value.data_ptr() < end for begin, end in ranges)


def _without_aliases(
    call: Call, inputs: list[Any], args: Sequence[Any], plan: GraphPlan, aliases: list[OutputAlias]
) -> tuple[Any, ...]:
    """Call the graph; replace each result that aliases an argument by None, and list it in `aliases`.

    Some results are never replaced, even if they alias an argument: tensors saved for the backward pass, and the results of a
    backward graph or of a graph that autograd differentiates.
    """
    outputs = list(call(list(inputs)))
    may_alias = plan.part != "backward" and not plan.is_differentiated  # gradients may alias what the forward graph saved
    candidates = [
        value if spec.kind != "managed" and isinstance(value, torch.Tensor) and value.stride() == arg.stride() else None
        for spec, value, arg in zip(plan.inputs, inputs, args, strict=True)
    ]
    aliases[:] = find_aliases(outputs[: plan.user_outputs], candidates) if may_alias else ()
    for alias in aliases:
        outputs[alias.result] = None
    return tuple(outputs)


_numbers = count(1)
_profiler, _IS_ON = profiler_flags()


def _name(part: Part) -> str:
    """Return the name of a new recording in profiler traces: `part` (such as "forward"), a number, and the user's line."""
    location = location_of_call()
    where = "" if location is None else f", recorded at {location}"
    return f"dynx: replay of {part} graph {next(_numbers)}{where}"


def _replayer(graph: _Graph, tally: Tally, name: str) -> Run:
    """Return a function that copies the inputs of a call, replays the graph, and returns the results.

    While torch.profiler is active, replays appear under `name` in its trace.
    """
    stage, in_graph = graph.staged.stage, graph.staged.in_graph
    captured, set_sources = graph.captured, graph.captured.set_sources

    def replay_with_name() -> None:
        with torch.profiler.record_function(name):
            captured.replay()

    before, results = graph.results.before_and_after(graph.captured)

    def run(args: Sequence[Any]) -> list[Any]:
        tally.times += 1
        copy_back = stage(args)
        if in_graph:
            set_sources([args[index] for index in in_graph])
        clones = before()
        if _profiler[_IS_ON]:
            replay_with_name()
        else:
            captured.replay()
        if copy_back is not None:
            copy_back()
        return results(clones)

    def run_without_staging(args: Sequence[Any]) -> list[Any]:
        tally.times += 1
        set_sources(args)
        clones = before()
        if _profiler[_IS_ON]:
            replay_with_name()
        else:
            captured.replay()
        return results(clones)

    if ranges := graph.read_ranges:  # the function must not refer to the graph, which keeps the arguments of its recording

        def run_on_clones_of_results(args: Sequence[Any]) -> list[Any]:
            return run([arg.clone() if _is_within(arg, ranges) else arg for arg in args])

        return run_on_clones_of_results
    is_simple = graph.staged.is_done_by_graph and in_graph == tuple(range(len(graph.inputs)))
    return run_without_staging if is_simple else run
