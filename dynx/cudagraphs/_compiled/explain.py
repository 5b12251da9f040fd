"""Explain how each compiled graph of a function is captured as a CUDA graph, or why it is not."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch

from dynx._reading.tensors import differentiable
from dynx._torch.compilation.anew import compile_apart
from dynx._torch.compilation.unwrap import unwrap
from dynx._torch.ops.memory_pools import pool_uses
from dynx.cudagraphs._compiled.backend import backend
from dynx.cudagraphs._compiled.observers import compiled_graphs
from dynx.cudagraphs._config import Config, config_or_default
from dynx.cudagraphs._runtime.select import select_runtime
from dynx.cudagraphs._search.find_modules import modules_of
from dynx.cudagraphs._stats import pools
from dynx.errors import DynxWarning, UsageError
from dynx.records.cudagraphs import CudagraphReport


def explain(fn: Callable[..., Any], /, *args: Any, config: Config | None = None, **kwargs: Any) -> CudagraphReport:
    """Compile a function with dynx_cudagraphs, call it three times, and report how each of its graphs is captured, or why not.

    The effects of the calls are not undone. If results require grad, gradients are computed and discarded, so that the
    report includes backward graphs. A compiled function is compiled again.

    Args:
        fn: A function or module, compiled or not.
        *args: Arguments of the calls.
        config: Options; see `Config`.
        **kwargs: Keyword arguments of the calls.

    Returns:
        A `CudagraphReport` with, for each graph: every input with its class, such as "static", and the reason for it; what
        cannot be captured, with its line and what to do about it; the pieces that the graph is split into; whether inputs
        are copied and results cloned, and why; numbers of recordings, replays and copies; bytes copied, bytes of memory held.

    Raises:
        UsageError: `fn` is not callable.

    Example:
        >>> import torch
        >>> from dynx import cudagraphs
        >>> model, config = torch.nn.Linear(2, 2), cudagraphs.Config(runtime="emulator")
        >>> report = cudagraphs.explain(lambda x: model(x), torch.ones(1, 2), config=config)
        >>> [(graph.plan.part, graph.recordings) for graph in report.graphs]
        [('forward', 1), ('backward', 1)]
        >>> [(input.name, input.kind) for input in report.graphs[0].plan.inputs]
        [('model.weight', 'static'), ('model.bias', 'static'), ('x', 'dynamic')]
    """
    config = config_or_default(config)
    if not callable(fn):
        raise UsageError(f"{fn!r} is not callable\n  pass a module or a function")
    unwrapped = unwrap(fn)
    original = unwrapped.original if unwrapped.module is None else unwrapped.module
    compiled = compile_apart(original, backend(config))
    notes = () if select_runtime(config) is not None else ("there is no CUDA device: nothing is captured",)
    before = [use.pool for use in pool_uses()]
    with compiled_graphs() as graphs, warnings.catch_warnings(action="ignore", category=DynxWarning):  # the report has them
        for _ in range(3):
            _forward_backward(compiled, original, args, kwargs)
    return CudagraphReport(tuple(graph.use() for graph in graphs), notes, pools(besides=before))


def _forward_backward(
    compiled: Callable[..., Any], original: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> None:
    results = differentiable(compiled(*args, **kwargs))
    leaves = differentiable((args, dict(kwargs)))
    leaves += [param for module in modules_of(original) for param in module.parameters() if param.requires_grad]
    if results and leaves:
        torch.autograd.grad(results, leaves, [torch.ones_like(result) for result in results], allow_unused=True)
