"""The torch.compile backend `dynx_cudagraphs`: analyze each graph that AOTAutograd makes, and wrap it in a runner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from weakref import WeakSet

import torch
from torch.fx import GraphModule

from dynx._torch.autograd import aot
from dynx._torch.autograd.checkpoints import restore_rng_states
from dynx._torch.autograd.inductor import Compiler, keeping_saved_tensors, with_inductor
from dynx._torch.autograd.saved_tensors import hooks_are_set
from dynx._trace.guards.requests import short_source
from dynx.advice import spoken
from dynx.cudagraphs._compiled.address_changes import SharedFacts
from dynx.cudagraphs._compiled.bypass import Bypass
from dynx.cudagraphs._compiled.observers import notify_compiled
from dynx.cudagraphs._compiled.runner import Runner
from dynx.cudagraphs._compiled.split_runner import SplitRunner, describe_pieces, eager_call, saved_outside, split_runner
from dynx.cudagraphs._config import Config, config_of, config_or_default
from dynx.cudagraphs._functions.grads_in_place import GradsInPlace
from dynx.cudagraphs._graph.plan import plan_of
from dynx.cudagraphs._notices import warn_or_raise
from dynx.cudagraphs._recording.replayable import Call
from dynx.cudagraphs._runtime.interface import Runtime
from dynx.cudagraphs._runtime.select import check_bindings, select_runtime
from dynx.cudagraphs._stats import count_skip
from dynx.errors import UsageError
from dynx.records.cudagraphs import GraphPlan, Part

_compiled: WeakSet[Runner | GradsInPlace] = WeakSet()  # what has replaced a graph, as long as torch refers to it

Capture = Callable[[Compiler], Any]  # takes what compiles a graph, returns the callable that replaces the graph


def backend(config: Config | None = None) -> Callable[..., Any]:
    """Return a backend for torch.compile that captures graphs as CUDA graphs.

    Passed to `torch.compile`, it does the same as `backend="dynx_cudagraphs", options={...}`. A graph that cannot be captured
    runs uncaptured, with a warning; if `config.or_error` is set, a call of the graph raises CaptureError instead.

    Args:
        config: Options; see `Config`.

    Returns:
        A callable for `torch.compile(backend=)`.

    Raises:
        UsageError: `config` is not a `Config`.

    Example:
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
    """Compile a Dynamo graph for `backend="dynx_cudagraphs"`; `options` are fields of `Config`, a `mode` raises UsageError."""
    if mode is not None:
        raise UsageError(
            f"backend='dynx_cudagraphs' takes no mode: mode={mode!r} is for inductor\n  leave it out, or pass options={{...}}"
        )
    return backend(config_of(options or {}))(gm, example_inputs)


def close_compiled() -> None:
    """Close the recordings of all graphs that the backend compiled; `torch._dynamo.reset()` calls it.

    torch keeps some compiled functions after its reset, those with collectives for example, and `destroy_process_group()` waits
    for the CUDA graphs that hold operations of NCCL. A backward pass that is still to come keeps its memory.
    """
    for compiled in tuple(_compiled):
        compiled.close()


dynx_cudagraphs.reset = close_compiled  # type: ignore[attr-defined]  # the attribute of a backend that torch looks for


class _Backend:
    reset = staticmethod(close_compiled)

    def __init__(self, config: Config) -> None:
        self.config = config
        self.__name__ = "dynx_cudagraphs"

    def __call__(self, gm: GraphModule, example_inputs: Sequence[Any]) -> Any:
        devices = (value.device for value in example_inputs if isinstance(value, torch.Tensor))
        runtime = select_runtime(self.config, device=next((device for device in devices if device.type == "cuda"), None))
        check_bindings(self.config, runtime)
        if self.config.buckets:
            raise UsageError(
                "buckets work only with cudagraphs.fast_path\n  leave out buckets; with torch.compile, mark sizes as dynamic"
            )
        compilation = _Compilation(self.config, runtime, aot.input_sources(gm))
        if self.config.gradients == "in_place" and runtime is not None and torch.is_grad_enabled():
            if hooks_are_set():
                raise UsageError(
                    "gradients='in_place' does not call saved-tensor hooks\n"
                    "  leave out gradients='in_place', or call the model where no saved-tensor hooks are set"
                )
            inner: Callable[..., Any] = gm
            if self.config.inner == "inductor":
                with keeping_saved_tensors():
                    inner = with_inductor(lambda part, gm, example_inputs: _uncaptured)(gm, example_inputs)
            else:
                restore_rng_states(gm)
            names = [spoken(short_source(source)) if source else "an input" for source in compilation.sources]
            _compiled.add(in_place := GradsInPlace(inner, aot.static_inputs(gm), names, self.config, runtime))
            return in_place
        if self.config.inner == "inductor":
            compiled = with_inductor(compilation.capture_for)(gm, example_inputs)
        else:
            compilers = [partial(compilation.capture_operators, part) for part in _PARTS]
            with keeping_saved_tensors():
                compiled = aot.with_compilers(*compilers)(gm, example_inputs)
        return compilation.bypasses[0].around(compiled) if len(compilation.bypasses) == 1 else compiled


_PARTS: tuple[Part, ...] = ("forward", "backward", "inference")


@dataclass(frozen=True, slots=True)
class _Compilation:
    """One compilation of a Dynamo graph, of which AOTAutograd makes up to three graphs: forward, backward, inference."""

    config: Config
    runtime: Runtime | None
    sources: Sequence[str]  # the Dynamo source of each input, such as "L['x']"
    facts: SharedFacts = field(default_factory=SharedFacts)
    bypasses: list[Bypass] = field(default_factory=list)

    def capture_for(self, part: Part, gm: GraphModule, example_inputs: Sequence[Any]) -> Capture:
        """Analyze a graph before it is compiled; return a function that takes a `Compiler` and returns what replaces the graph.

        The replacement is a runner that captures and replays the compiled graph, or that graph itself if it cannot be captured.
        """
        plan = self._plan(part, gm)
        if self.runtime is None:
            notify_compiled(plan)
            return self._uncaptured("there is no CUDA device: graphs run uncaptured")
        for skip in plan.skips:
            count_skip(skip)
        if not plan.skips:
            is_direct = part == "inference" and not aot.graph_facts().acts_besides
            return partial(self._capture_with_bypass if is_direct else self._capture, plan, self.runtime)
        if part == "forward":
            self.facts.saved_elsewhere.update(saved_outside(gm, plan))
        if not plan.pieces:
            notify_compiled(plan)
            return self._uncaptured(_why_uncaptured(plan))
        return partial(self._split, gm, plan, self.runtime)

    def capture_operators(self, part: Part, gm: GraphModule, example_inputs: Sequence[Any]) -> Any:
        """Return a runner that captures the operators of a graph; if that is impossible, a function that runs them eagerly."""
        return self.capture_for(part, gm, example_inputs)(Compiler(partial(eager_call, gm), eager_call))

    def _uncaptured(self, why: str) -> Capture:
        """Warn that a graph runs uncaptured, and return a function that returns the compiled graph itself.

        With `or_error`, each call of the graph raises CaptureError instead. It is not raised now: Dynamo would wrap an error
        during compilation, or ignore it if `torch._dynamo.config.suppress_errors` is set.
        """
        if self.config.or_error:
            return lambda compiler: aot.boxed(lambda args: warn_or_raise(why, self.config))
        warn_or_raise(why, self.config)
        return _uncaptured

    def _plan(self, part: Part, gm: GraphModule) -> GraphPlan:
        device = self.runtime.device if self.runtime is not None else torch.device("cpu")
        may_split = self.runtime is not None and self.config.partition and not self.config.or_error
        plan, unsafe = plan_of(gm, part, device, self.sources, self.facts.saved_elsewhere)
        return replace(plan, pieces=describe_pieces(gm, plan, unsafe)) if unsafe and may_split else plan

    def _capture(self, plan: GraphPlan, runtime: Runtime, compiler: Compiler) -> Runner:
        runner = Runner(compiler.whole(), plan, self.config, runtime, self.facts)
        _compiled.add(runner)
        notify_compiled(plan, [runner])
        return runner

    def _capture_with_bypass(self, plan: GraphPlan, runtime: Runtime, compiler: Compiler) -> Bypass:
        self.bypasses.append(bypass := Bypass(self._capture(plan, runtime, compiler)))
        return bypass

    def _split(self, gm: GraphModule, plan: GraphPlan, runtime: Runtime, compiler: Compiler) -> SplitRunner:
        runner = split_runner(gm, plan, self.config, runtime, self.facts, compiler.part)
        _compiled.update(runner.runners)
        notify_compiled(plan, runner.runners)
        return runner


def _uncaptured(compiler: Compiler) -> Call:
    return compiler.whole()


def _why_uncaptured(plan: GraphPlan) -> str:
    skip = plan.skips[0]
    where = f"{skip.location.file}:{skip.location.line}: " if skip.location is not None else ""
    advice = f"\n  {skip.advice}" if skip.advice else ""
    return f"{where}the {plan.part} graph runs uncaptured, since {skip.reason}{advice}"
