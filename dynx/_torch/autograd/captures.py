"""Observe compiled autograd: each backward pass that it captures, torch's reason, its graph, and its calls.

Torch: `AutogradCompilerInstance` in `torch._dynamo.compiled_autograd`, whose methods C++ calls; `set_verbose_logger`, which
makes C++ find out why no capture in its cache fits. There is no getter for the logger: `remove()` restores the one that torch's
own logging asks for.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from dynx._handle import Handle
from dynx._torch import hooks
from dynx._torch.autograd.nodes import RawHook, RawNode, describe, in_order, read
from dynx._torch.capabilities import hook_point

_NEW_NODE = re.compile(
    r"new autograd node: \S+ \(NodeCall (?P<number>\d+)\) with key size (?P<size>\d+), "
    r"previous key sizes=\[(?P<sizes>[^\]]*)\]"
)
_NEW_SIZES = re.compile(r"changed tensor shapes.*?: (?P<sizes>.*)")
_SIZE = re.compile(r"sizes\[(?P<index>\d+)\]")


@dataclass(slots=True)
class RawMiss:
    """Why no entry of compiled autograd's cache fits: the number of the first node without one, or the sizes that differ."""

    text: str
    node: int | None = None
    key_size: int | None = None
    key_sizes: tuple[int, ...] = ()  # of the entries at the same node
    sizes: tuple[int, ...] = ()  # indices into the sizes of the capture


@dataclass(slots=True)
class RawCapture:
    """A capture, as plain values besides the graph; filled while compiled autograd works."""

    id: int = -1
    nodes: list[RawNode] = field(default_factory=list)  # without the root
    sizes: tuple[int, ...] = ()
    of_sizes: tuple[tuple[int, str], ...] = ()  # the number and name of the node that each size belongs to
    scalars: tuple[int | float, ...] = ()
    inputs: int = 0
    accumulates: bool = True  # False for `torch.autograd.grad`
    miss: RawMiss | None = None
    before_reordering: tuple[str, ...] = ()  # names of nodes of the graph
    graph: Any = None
    hooks: tuple[RawHook, ...] = ()  # of all nodes, in the order of the graph's input `hooks`; known at the first call
    seconds: float = 0.0
    seconds_capture: float = 0.0
    calls: int = 0
    thread: int = field(default_factory=threading.get_ident)


OnCapture = Callable[[RawCapture], None]


class Observation(Handle):
    """Calls `on_capture` after each capture of compiled autograd on any thread; its `calls` and `hooks` are filled later."""

    __slots__ = ("_active", "_handles", "_on_capture", "_roots")

    def __init__(self, on_capture: OnCapture, on_error: hooks.OnError) -> None:
        self._on_capture = on_capture
        self._roots = _Roots()
        self._active: dict[int, tuple[RawCapture, float]] = {}  # by the id of torch's compiler instance; with the start
        subscribers = {
            "backward_pass": self._backward,
            "capture_begin": self._begin,
            "capture_reasons": self._reasons,
            "capture_reordering": self._reordering,
            "capture_graph": self._graph,
            "capture_reset": lambda args, kwargs: lambda result, error: _keep_logger(),
        }
        self._handles: list[Any] = []
        for name, before in subscribers.items():
            self._handles.append(hooks.subscribe(hook_point(name), before, on_error=on_error))
        self._handles.append(hooks.wrap(hook_point("capture_end"), self._make_end))
        _observations.add(self)
        _keep_logger()

    def remove(self) -> None:
        while self._handles:
            self._handles.pop().remove()
        _observations.discard(self)
        _keep_logger()

    def _backward(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> hooks.After:
        self._roots.stack.append([torch.autograd.graph.get_gradient_edge(each).node for each in args[0]])

        def after(result: Any, error: BaseException | None) -> None:
            self._roots.stack.pop()

        return after

    def _begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> hooks.After:
        instance, inputs, sizes, scalars, origins, accumulates, *_ = args
        capture = RawCapture(
            nodes=[read(node) for node in in_order(self._roots.stack[-1])] if self._roots.stack else [],
            sizes=tuple(sizes),
            of_sizes=tuple((number, name) for number, name in origins[1]),
            scalars=tuple(scalars),
            inputs=len(inputs),
            accumulates=accumulates,
        )
        self._active[id(instance)] = capture, time.perf_counter()

        def after(result: Any, error: BaseException | None) -> None:
            capture.id = instance.id

        return after

    def _reasons(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        instance, reasons = args
        if id(instance) in self._active:
            self._active[id(instance)][0].miss = parsed(reasons[-1])

    def _reordering(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        (instance,) = args
        if id(instance) in self._active:
            self._active[id(instance)][0].before_reordering = tuple(node.name for node in instance.fx_tracer.graph.nodes)

    def _graph(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> hooks.After | None:
        if id(args[0]) not in self._active:
            return None
        capture, start = self._active[id(args[0])]
        capture.seconds_capture = time.perf_counter() - start

        def after(result: Any, error: BaseException | None) -> None:
            capture.graph = result

        return after

    def _make_end(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def end(instance: Any, outputs: Any) -> Any:
            try:
                runtime, compiled = original(instance, outputs)
            finally:
                capture, start = self._active.pop(id(instance), (None, 0.0))
            if capture is None:
                return runtime, compiled
            capture.seconds = time.perf_counter() - start
            self._on_capture(capture)
            return self._counted(capture, runtime), compiled

        return end

    def _counted(self, capture: RawCapture, runtime: Callable[..., Any]) -> Callable[..., Any]:
        """Return `runtime`, which torch's cache keeps, so that it counts its calls while this observation is installed."""

        def call(compiled: Any, inputs: Any, sizes: Any, scalars: Any, own_hooks: Any, packed: Any) -> Any:
            if self._handles:
                if not capture.calls:
                    capture.hooks = tuple(describe("", hook) for hook in own_hooks)
                capture.calls += 1
            return runtime(compiled, inputs, sizes, scalars, own_hooks, packed)

        return call


class _Roots(threading.local):
    def __init__(self) -> None:
        self.stack: list[list[Any]] = []


class _Logger:
    def debug(self, message: str, *args: Any) -> None:
        """Take a message of C++, of which `log_compile_reasons` gets the same text."""


_observations: set[Observation] = set()
_LOGGER = _Logger()  # C++ does not keep it alive


def _keep_logger() -> None:
    """Let C++ find reasons while an observation is installed, and else if torch's own logging asks for it."""
    from torch._dynamo import compiled_autograd

    is_logged = compiled_autograd.snapshot_verbose_logging_enabled()
    logger = compiled_autograd.verbose_log if is_logged else _LOGGER if _observations else None
    torch._C._dynamo.compiled_autograd.set_verbose_logger(logger)


def parsed(text: str) -> RawMiss:
    """Read the message of C++ about a cache miss; one of an unknown form has only its text."""
    if (match := _NEW_NODE.search(text)) is not None:
        sizes = tuple(int(size) for size in match["sizes"].split(",") if size.strip())
        return RawMiss(text, int(match["number"]), int(match["size"]), sizes)
    if (match := _NEW_SIZES.search(text)) is not None:
        return RawMiss(text, sizes=tuple(int(each["index"]) for each in _SIZE.finditer(match["sizes"])))
    return RawMiss(text)


@contextmanager
def enabled(compiler: Callable[[Any], Any], *, dynamic: bool) -> Iterator[None]:
    """Enable compiled autograd on this thread: `compiler` takes each captured `GraphModule` and returns a callable."""
    from torch._dynamo import compiled_autograd

    with compiled_autograd._enable(compiler, dynamic=dynamic):
        yield
