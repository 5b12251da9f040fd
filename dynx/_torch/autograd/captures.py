"""Observe compiled autograd: each backward pass that it captures, torch's reason, its graph, and its calls.

Torch: `AutogradCompilerInstance` in `torch._dynamo.compiled_autograd`, whose methods C++ calls. C++ says why no capture in its
cache fits only with a logger (`set_verbose_logger`), and with one it raises an internal error where a capture ends within the
nodes of another, or has failed before. So none is set here: torch's words are known only if torch's own logging asks for them.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch

from dynx._handle import Handle
from dynx._torch import hooks
from dynx._torch.autograd.capture_cache import Emptied, emptied
from dynx._torch.autograd.nodes import ACCUMULATE, RawHook, RawNode, describe, is_unusable, read_all
from dynx._torch.capabilities import hook_point
from dynx.errors import UsageError


@dataclass(slots=True)
class RawCapture:
    """A capture, as plain values besides the graph; filled while compiled autograd works."""

    nodes: list[RawNode]  # without the root
    sizes: int
    inputs: int
    accumulates: bool  # False for `torch.autograd.grad`
    emptied: Emptied  # how often torch's cache was emptied before it
    classes: tuple[str, ...] = ()  # of the tensors at which the pass begins
    targets: tuple[str | int, ...] = ()  # of the argument `inputs`: ids of leaves, names of the nodes of other tensors
    create_graph: bool = False
    number: int = -1  # torch's id: "!0" is number 0
    reason: str = ""  # torch's words, if TORCH_LOGS=compiled_autograd_verbose is set
    before_reordering: tuple[str, ...] = ()  # names of nodes of the graph
    graph: Any = None
    hooks: tuple[RawHook, ...] = ()  # of all nodes, in the order of the graph's input `hooks`; known at the first call
    began: float = field(default_factory=time.time)
    times: dict[str, float] = field(default_factory=dict)  # of `time.perf_counter`: at the start, and at the end of each phase
    calls: int = 0

    @property
    def phases(self) -> dict[str, float]:
        """The seconds of each phase."""
        return {name: end - start for (_, start), (name, end) in pairwise(self.times.items())}


OnCapture = Callable[[RawCapture], None]
_ARGUMENTS = ("self", "inputs", "sizes", "scalars", "origins", "accumulate_grad")  # of `begin_capture`
_CREATE_GRAPH, _INPUTS = 2, 3  # indices of arguments of the engine, after the outputs
_ENGINE = "_engine_run_backward"  # the function of torch through which each backward pass of Python goes


class Observation(Handle):
    """Calls `on_capture` after each capture of compiled autograd on any thread, and `on_call` when its graph runs first.

    `calls`, which count after `remove()` too, and `hooks` of a capture are known from its first call on. A backward pass that
    begins in a compiled function, after a graph break, runs where Dynamo compiles each function that is called: what runs here
    is kept from it.
    """

    __slots__ = ("_active", "_first", "_handles", "_on_call", "_on_capture", "_on_error")

    def __init__(self, on_capture: OnCapture, on_call: OnCapture, on_error: hooks.OnError) -> None:
        from torch._dynamo.eval_frame import skip_code

        functions = Observation._make_end, Observation._counted, Observation._safely
        for code in (*hooks.codes_of_a_call(), *(code for function in functions for code in _codes(function))):
            skip_code(code)
        self._on_capture, self._on_call, self._on_error = torch.compiler.disable(on_capture), on_call, on_error
        self._first = torch.compiler.disable(self._note_hooks)
        self._active: dict[int, RawCapture] = {}  # by the id of torch's compiler instance
        subscribers = {
            "capture_begin": self._begin,
            "capture_reasons": self._reasons,
            "capture_reordering": self._reordering,
            "capture_graph": self._graph,
            "capture_reset": _count_reset,
        }
        self._handles: list[Any] = []
        for name, before in subscribers.items():
            self._handles.append(hooks.subscribe(hook_point(name), torch.compiler.disable(before), on_error=on_error))
        self._handles.append(hooks.wrap(hook_point("capture_end"), self._make_end))

    def remove(self) -> None:
        while self._handles:
            self._handles.pop().remove()
        self._on_capture = self._on_call = _nothing  # torch's cache keeps this object

    def _begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> hooks.After:
        named = dict(zip(_ARGUMENTS, args, strict=False)) | kwargs
        instance, sizes, inputs = named["self"], named["sizes"], named["inputs"]
        request = _request()
        capture = RawCapture(
            read_all(request.roots, request.targets),
            len(sizes),
            len(inputs),
            named["accumulate_grad"],
            replace(emptied),
            request.classes,
            tuple(id(node.variable) if node.name() == ACCUMULATE else node.name() for node in request.targets),
            request.create_graph,
        )
        self._active[id(instance)] = capture
        capture.times["start"] = time.perf_counter()

        def after(result: Any, error: BaseException | None) -> None:
            capture.number = instance.id

        return torch.compiler.disable(after)

    def _reasons(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        instance, reasons = args
        if id(instance) in self._active:
            self._active[id(instance)].reason = reasons[-1]

    def _reordering(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        (instance,) = args
        if id(instance) in self._active:
            self._active[id(instance)].before_reordering = tuple(node.name for node in instance.fx_tracer.graph.nodes)

    def _graph(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> hooks.After | None:
        if id(args[0]) not in self._active:
            return None
        capture = self._active[id(args[0])]
        capture.times["reorder"] = time.perf_counter()

        def after(result: Any, error: BaseException | None) -> None:
            capture.graph = result
            capture.times["code"] = time.perf_counter()

        return torch.compiler.disable(after)

    def _make_end(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def end(instance: Any, outputs: Any) -> Any:
            if (started := self._active.get(id(instance))) is not None:
                started.times["trace"] = time.perf_counter()
            try:
                runtime, compiled = original(instance, outputs)
            finally:
                capture = self._active.pop(id(instance), None)
            if capture is None:
                return runtime, compiled
            capture.times["backend"] = time.perf_counter()
            self._safely(self._on_capture, capture)
            return self._counted(capture, runtime), compiled

        return end

    def _counted(self, capture: RawCapture, runtime: Callable[..., Any]) -> Callable[..., Any]:
        """Return `runtime`, which torch's cache keeps, so that it counts its calls."""

        @functools.wraps(runtime)
        def call(compiled_fn: Any, inputs: Any, sizes: Any, scalars: Any, hooks: Sequence[Any], packed_inputs: Any) -> Any:
            capture.calls += 1
            if capture.calls == 1:
                self._first(capture, hooks)
            return runtime(compiled_fn, inputs, sizes, scalars, hooks, packed_inputs)

        return call

    def _note_hooks(self, capture: RawCapture, own_hooks: Sequence[Any]) -> None:
        capture.hooks = tuple(describe("", hook) for hook in own_hooks)
        self._safely(self._on_call, capture)

    def _safely(self, callback: OnCapture, capture: RawCapture) -> None:
        try:
            callback(capture)
        except Exception as error:  # noqa: BLE001 - an observer that fails must not stop the backward pass
            self._on_error("captures of compiled autograd", error)


def uncaptured(tensors: Sequence[torch.Tensor]) -> RawCapture:
    """Return what a capture of `backward()` of these tensors would begin with.

    Raises: UsageError if their backward pass raises.
    """
    roots = [torch.autograd.graph.get_gradient_edge(tensor).node for tensor in tensors]
    if is_unusable(roots):
        what = "backward() raises: an earlier one has freed the autograd graph, or a saved tensor was changed in place"
        raise UsageError(f"{what}\n  pass the loss of a new call")
    classes = tuple(type(tensor).__qualname__ for tensor in tensors)
    return RawCapture(read_all(roots), 0, len(tensors), accumulates=True, emptied=replace(emptied), classes=classes)


def _count_reset(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    emptied.resets += 1


def _nothing(capture: RawCapture) -> None:
    """Take a capture after the observation has ended."""


def _codes(function: Any) -> list[CodeType]:
    """Return the code of a function and of the functions defined in it."""
    return [function.__code__, *(code for code in function.__code__.co_consts if isinstance(code, CodeType))]


class _Request(NamedTuple):
    """The arguments of a backward pass; empty if C++ began it."""

    roots: Sequence[Any] = ()  # nodes
    targets: Sequence[Any] = ()  # nodes of the tensors of `inputs`
    classes: tuple[str, ...] = ()
    create_graph: bool = False


def _request() -> _Request:
    """Return the arguments of the pass that is being captured."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == _ENGINE and frame.f_globals.get("__name__") == "torch.autograd.graph":
            outputs, args = frame.f_locals.get("t_outputs", ()), frame.f_locals.get("args", ())
            kwargs = frame.f_locals.get("kwargs", {})
            inputs = args[_INPUTS] if len(args) > _INPUTS else kwargs.get("inputs")
            create_graph = args[_CREATE_GRAPH] if len(args) > _CREATE_GRAPH else kwargs.get("create_graph")
            classes = tuple(type(each).__qualname__ for each in outputs)
            return _Request(_nodes(outputs), _nodes(inputs or ()), classes, bool(create_graph))
        frame = frame.f_back
    return _Request()


def _nodes(tensors: Sequence[Any]) -> list[Any]:
    edge = torch.autograd.graph.get_gradient_edge
    return [(each if isinstance(each, torch.autograd.graph.GradientEdge) else edge(each)).node for each in tensors]
