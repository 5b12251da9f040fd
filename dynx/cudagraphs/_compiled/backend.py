"""`backend="dynx_cudagraphs"`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch.fx import GraphModule

from dynx._torch.autograd import aot
from dynx._torch.autograd.inductor import keeping_saved_tensors, with_inductor
from dynx._trace.guard_requests import short_source
from dynx.advice import spoken
from dynx.cudagraphs._compiled.address_changes import Shared
from dynx.cudagraphs._compiled.bypass import Direct
from dynx.cudagraphs._compiled.observers import tell_of
from dynx.cudagraphs._compiled.runner import Runner
from dynx.cudagraphs._compiled.split_runner import Divided, described_pieces, divided, moving_results
from dynx.cudagraphs._config import Config, config_of, config_or_default
from dynx.cudagraphs._functions.grads_in_place import InPlace
from dynx.cudagraphs._graph.plan import plan_of
from dynx.cudagraphs._graph.plan_cache import kept_plan
from dynx.cudagraphs._notices import tell
from dynx.cudagraphs._recording.recording import Call
from dynx.cudagraphs._runtime.interface import Runtime
from dynx.cudagraphs._runtime.select import check_bindings, runtime_of
from dynx.cudagraphs._stats import count_skip
from dynx.errors import UsageError
from dynx.records.cudagraphs import GraphPlan, Part


def backend(config: Config | None = None) -> Callable[..., Any]:
    """Make a backend of torch.compile that captures the graphs it is given as CUDA graphs.

    The same as `torch.compile(..., backend="dynx_cudagraphs", options={...})`. A graph that cannot be captured is run as it is,
    with a warning; with `or_error` that raises CaptureError.

    >>> import torch
    >>> from dynx import cudagraphs
    >>> f = torch.compile(lambda x: x * 2, backend=cudagraphs.backend(cudagraphs.Config(runtime="emulator")))
    >>> [f(torch.full((2,), float(i))).tolist() for i in range(3)]
    [[0.0, 0.0], [2.0, 2.0], [4.0, 4.0]]
    """
    return _Backend(config_or_default(config))


def dynx_cudagraphs(
    gm: GraphModule, example_inputs: Sequence[Any], *, options: dict[str, Any] | None = None, mode: str | None = None
) -> Any:
    """Compile a graph for torch.compile; `options` are the fields of Config."""
    if mode is not None:
        raise UsageError(f"mode={mode!r} is inductor's; dynx_cudagraphs has none\n  leave it out, or use options={{...}}")
    return backend(config_of(options or {}))(gm, example_inputs)


class _Backend:
    def __init__(self, config: Config) -> None:
        self.config = config
        self.__name__ = "dynx_cudagraphs"

    def __call__(self, gm: GraphModule, example_inputs: Sequence[Any]) -> Any:
        runtime = runtime_of(self.config, device=_device_of(example_inputs))
        check_bindings(self.config, runtime)
        if self.config.buckets:
            raise UsageError("buckets are for cudagraphs.fast_path\n  with torch.compile, mark sizes as dynamic")
        shared = Shared()
        look = partial(_look, self.config, runtime, aot.input_sources(gm), shared)
        if self.config.gradients == "in_place" and runtime is not None and torch.is_grad_enabled():
            inner: Callable[..., Any] = gm
            if self.config.inner == "inductor":
                with keeping_saved_tensors():
                    inner = with_inductor(_as_it_is_compiled)(gm, example_inputs)
            return InPlace(inner, aot.static_inputs(gm), _names(gm), self.config, runtime)
        if self.config.inner == "inductor":
            compiled = with_inductor(look)(gm, example_inputs)
        else:
            compilers = [partial(_run_as_it_is, partial(look, part)) for part in _PARTS]
            with keeping_saved_tensors():
                compiled = aot.with_compilers(*compilers)(gm, example_inputs)
        return shared.direct[0].around(compiled) if len(shared.direct) == 1 else compiled


_PARTS: tuple[Part, ...] = ("forward", "backward", "inference")


def _run_as_it_is(look: Callable[..., Callable[[Call], Any]], gm: GraphModule, example_inputs: Sequence[Any]) -> Any:
    """Compile a graph to a call of it."""
    return look(gm, example_inputs)(aot.boxed(lambda args: gm(*args)))


def _look(
    config: Config,
    runtime: Runtime | None,
    sources: Sequence[str],
    shared: Shared,
    part: Part,
    gm: GraphModule,
    example_inputs: Sequence[Any],
) -> Callable[[Call], Any]:
    """Look at a graph before it is compiled; gives what captures the compiled one."""
    device = runtime.device if runtime is not None else torch.device("cpu")
    may_divide = runtime is not None and config.partition and config.inner == "eager" and not config.or_error

    def look() -> GraphPlan:
        plan, unsafe = plan_of(gm, part, device, sources, shared.moving)
        return replace(plan, pieces=described_pieces(gm, plan, unsafe)) if unsafe and may_divide else plan

    told = (part, str(device), *sources, *sorted(shared.moving), may_divide)
    plan = kept_plan(config.plans, gm, told, look) if config.plans else look()
    if runtime is None:
        tell_of(plan)
        tell("there is no CUDA device: graphs run uncaptured", config)
        return _as_it_is
    for skip in plan.skips:
        count_skip(skip)
    if not plan.skips:
        capture = _capture_directly if part == "inference" and not aot.graph_facts().acts_besides else _capture
        return partial(capture, plan, config, runtime, shared)
    if part == "forward":
        shared.moving.update(moving_results(gm, plan))
    if not plan.pieces:
        tell_of(plan)
        tell(_words(plan), config)
        return _as_it_is
    return partial(_divide, gm, plan, config, runtime, shared)


def _capture(plan: GraphPlan, config: Config, runtime: Runtime, shared: Shared, call: Call) -> Runner:
    runner = Runner(call, plan, config, runtime, shared)
    tell_of(plan, [runner])
    return runner


def _capture_directly(plan: GraphPlan, config: Config, runtime: Runtime, shared: Shared, call: Call) -> Direct:
    shared.direct.append(direct := Direct(_capture(plan, config, runtime, shared, call)))
    return direct


def _divide(gm: GraphModule, plan: GraphPlan, config: Config, runtime: Runtime, shared: Shared, call: Call) -> Divided:
    made = divided(gm, plan, config, runtime, shared)
    tell_of(plan, made.runners)
    return made


def _device_of(example_inputs: Sequence[Any]) -> torch.device | None:
    """Give the first CUDA device among the inputs of a graph."""
    devices = (each.device for each in example_inputs if isinstance(each, torch.Tensor))
    return next((each for each in devices if each.type == "cuda"), None)


def _names(gm: GraphModule) -> list[str]:
    return [spoken(short_source(source)) if source else "an input" for source in aot.input_sources(gm)]


def _as_it_is_compiled(part: Part, gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[[Call], Any]:
    return _as_it_is


def _as_it_is(call: Call) -> Call:
    return call


def _words(plan: GraphPlan) -> str:
    skip = plan.skips[0]
    where = f"{skip.location.file}:{skip.location.line}: " if skip.location is not None else ""
    advice = f"\n  {skip.advice}" if skip.advice else ""
    return f"{where}the {plan.part} graph runs uncaptured, since {skip.reason}{advice}"
