"""Compile a function again, run its forward and backward pass, and restore the state of the program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from dynx._bytecode.cells import is_filled
from dynx._bytecode.globals_read import globals_read
from dynx._reading.tensors import differentiable
from dynx._torch.compilation.anew import backend_of, backward_as_often_as_eager_code, compile_anew, own_errors, without_limits
from dynx._torch.compilation.unwrap import unwrap
from dynx.errors import UsageError
from dynx.records.saved import SavedGraph, SavedTensor
from dynx.saved._codec import dtype_name
from dynx.saved._eager import EagerTensor, stored_bytes, watch_eager
from dynx.saved._hooks import SavedHooks
from dynx.saved._observe import SavedGraphs


class Trial(NamedTuple):
    """The tensors that one forward and backward pass saved, and the gradients by name of the parameter or input."""

    graphs: tuple[SavedGraph, ...]
    eager: tuple[SavedTensor, ...]
    gradients: Mapping[str, torch.Tensor]
    peaks: tuple[int, int] | None  # bytes allocated on CUDA in forward and backward, minus those before; None without CUDA
    seconds: float | None = None  # the median of the repeated steps


class Program:
    """A function or module with the arguments of a call; `run` calls it under hooks, each time with the same random numbers.

    `backend` defaults to the backend of `fn`, or inductor if `fn` is not compiled. Raises UsageError if `fn` is not callable.
    """

    def __init__(self, fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], backend: Any = None) -> None:
        if not callable(fn):
            raise UsageError(f"{fn!r} is not callable\n  pass a module or a function that returns a loss")
        unwrapped = unwrap(fn)
        compiled = backend_of(unwrapped.compiled)
        original = unwrapped.original if compiled is not None else fn  # `fn` may be under torch.compiler.disable
        self.original = unwrapped.module if unwrapped.module is not None else original
        self.backend = backend if backend is not None else compiled if compiled is not None else "inductor"
        self._args, self._kwargs = args, kwargs
        self._modules = _modules_of(self.original, (args, dict(kwargs)))
        self._names = _names(self._modules, args, kwargs)

    def run(self, hooks: SavedHooks | None, *, repeats: int = 0) -> Trial:
        """Compile the function, run forward and backward, and return a `Trial`; `repeats` further passes give its `seconds`.

        Raises:
            UsageError: The function returns nothing that needs a gradient.
        """
        graphs: list[SavedGraph] = []
        with _restored(self._modules), without_limits(), SavedGraphs(graphs.append), own_errors():
            compiled = compile_anew(self.original, self.backend)
            with watch_eager() as eager:
                gradients, peaks = self._train(compiled, hooks)
            records = tuple(map(_eager_record, eager))
            times = [self._seconds(compiled, hooks) for _ in range(repeats)]
        return Trial(tuple(graphs), records, gradients, peaks, median(times) if times else None)

    @contextmanager
    def backward(self, hooks: SavedHooks) -> Iterator[Callable[[], dict[str, torch.Tensor]]]:
        """Compile, run forward, and yield a function that runs backward and returns gradients; it can be called many times."""
        with _restored(self._modules), without_limits(), backward_as_often_as_eager_code(), own_errors():
            compiled = compile_anew(self.original, self.backend)
            results = self._forward(compiled, hooks)
            yield lambda: self._gradients(results, retain_graph=True)

    def _seconds(self, compiled: Callable[..., Any], hooks: SavedHooks | None) -> float:
        start = perf_counter()
        self._train(compiled, hooks)
        return perf_counter() - start

    def _train(
        self, compiled: Callable[..., Any], hooks: SavedHooks | None
    ) -> tuple[dict[str, torch.Tensor], tuple[int, int] | None]:
        meter = _Meter()
        results = self._forward(compiled, hooks)
        forward = meter.peak()
        gradients = self._gradients(results)
        return gradients, (forward, meter.peak()) if meter.has_cuda else None

    def _forward(self, compiled: Callable[..., Any], hooks: SavedHooks | None) -> list[torch.Tensor]:
        with hooks if hooks is not None else nullcontext(), torch.enable_grad():
            results = differentiable(compiled(*self._args, **self._kwargs))
        if not results:
            name = getattr(self.original, "__qualname__", None) or type(self.original).__qualname__
            raise UsageError(
                f"{name} returns no tensor that requires a gradient\n"
                "  pass a function that returns a loss, or a module that is being trained"
            )
        return results

    def _gradients(self, results: Sequence[torch.Tensor], *, retain_graph: bool = False) -> dict[str, torch.Tensor]:
        leaves = _leaves_of(results)
        ones = [torch.ones_like(result) for result in results]
        gradients = torch.autograd.grad(results, leaves, ones, allow_unused=True, retain_graph=retain_graph)
        named = zip(leaves, gradients, strict=True)
        return {
            self._names.get(id(leaf), f"tensor {index} of shape {tuple(leaf.shape)}"): gradient
            for index, (leaf, gradient) in enumerate(named)
            if gradient is not None
        }


def simulated_peaks(graphs: Sequence[SavedGraph]) -> tuple[int, int]:
    """Return the largest simulated peaks, in bytes, of the forward graphs and of the backward graphs."""
    forward = max((graph.forward_peak for graph in graphs), default=0)
    return forward, max((graph.backward_peak for graph in graphs), default=0)


class _Meter:
    """Measures bytes on the current CUDA device: `peak()` returns the peak since its last call minus the start; 0: no CUDA."""

    def __init__(self) -> None:
        self.has_cuda = torch.cuda.is_available() and torch.cuda.is_initialized()
        self._base = 0
        if self.has_cuda:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            self._base = torch.cuda.memory_allocated()

    def peak(self) -> int:
        if not self.has_cuda:
            return 0
        torch.cuda.synchronize()
        found = torch.cuda.max_memory_allocated() - self._base
        torch.cuda.reset_peak_memory_stats()
        return found


@contextmanager
def _restored(modules: Sequence[nn.Module]) -> Iterator[None]:
    """Restore the buffers of modules and the RNG states after a `with` block, so that each run has the same random numbers."""
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    buffers = [buffer for module in modules for buffer in module.buffers()]
    values = [buffer.detach().clone() for buffer in buffers]
    with torch.random.fork_rng(devices):
        try:
            yield
        finally:
            with torch.no_grad():
                for buffer, value in zip(buffers, values, strict=True):
                    buffer.copy_(value)


def _leaves_of(results: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the leaf tensors that get a gradient from results, in the order in which the autograd graph reaches them."""
    leaves: dict[int, torch.Tensor] = {}
    waiting: list[Any] = [result.grad_fn for result in results]
    seen: set[Any] = set()
    while waiting:
        node = waiting.pop(0)
        if node is None or node in seen:
            continue
        seen.add(node)
        if (variable := getattr(node, "variable", None)) is not None:
            leaves[id(variable)] = variable
        waiting += [following for following, _ in node.next_functions]
    return list(leaves.values())


def _modules_of(fn: Any, arguments: Any) -> list[nn.Module]:
    """Return the modules that `fn` uses: itself, its `__self__`, and modules in its closure, globals and arguments."""
    found: list[Any] = [fn, getattr(fn, "__self__", None), *tree_leaves(arguments)]
    if hasattr(fn, "__code__"):
        function = getattr(fn, "__func__", fn)
        found += [cell.cell_contents for cell in function.__closure__ or () if is_filled(cell)]
        found += globals_read(function).values()
    modules = {id(value): value for value in found if isinstance(value, nn.Module)}
    return list(modules.values())


def _names(modules: Sequence[nn.Module], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[int, str]:
    """Return the names of parameters and of tensor arguments, by `id()` of the tensor."""
    arguments = [(f"argument {index}", value) for index, value in enumerate(args)] + list(kwargs.items())
    names = {id(value): name for name, value in arguments if isinstance(value, torch.Tensor)}
    for module in modules:
        names.update((id(parameter), name) for name, parameter in module.named_parameters())
    return names


def _eager_record(saved: EagerTensor) -> SavedTensor:
    tensor, candidate, rule = saved.tensor, saved.candidate, saved.rule
    size = tensor.numel() * tensor.element_size()
    return SavedTensor(
        "eager",
        candidate.kind,
        tensor.grad_fn.name() if tensor.grad_fn is not None else "",
        dtype_name(tensor.dtype),
        tuple(tensor.shape),
        size,
        size if rule is None else stored_bytes(saved.stored, tensor.device),
        codec=rule.codec.name if rule is not None else None,
        rule=str(rule) if rule is not None else None,
        is_exact=rule is None or rule.codec.is_exact,
        location=candidate.location,
        reads_as_mask=candidate.reads_as_mask,
    )
