"""What becomes of the graphs of a function."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from dynx._torch.compilation.wrappers import innermost
from dynx.cudagraphs._compiled import observers
from dynx.cudagraphs._compiled.backend import backend
from dynx.cudagraphs._config import Config, config_or_default
from dynx.cudagraphs._runtime.select import runtime_of
from dynx.cudagraphs._state.find_modules import modules_of
from dynx.errors import DynxWarning
from dynx.records.cudagraphs import CudagraphReport


def explain(fn: Callable[..., Any], *args: Any, config: Config | None = None, **kwargs: Any) -> CudagraphReport:
    """Compile a function with dynx_cudagraphs, call it three times, and tell what becomes of each of its graphs.

    For each graph: every input with its class and why, what cannot be captured with its line and what to do about it, the
    pieces that it is divided into, recordings, copies and bytes per call, memory. Backward graphs too, where results have
    gradients; these are computed, and thrown away. The calls are real ones. A compiled function is compiled anew.

    >>> import torch
    >>> from dynx import cudagraphs
    >>> model, config = torch.nn.Linear(2, 2), cudagraphs.Config(runtime="emulator")
    >>> report = cudagraphs.explain(lambda x: model(x), torch.ones(1, 2), config=config)
    >>> [(graph.plan.part, graph.recordings) for graph in report.graphs]
    [('forward', 1), ('backward', 1)]
    >>> [(each.name, each.kind) for each in report.graphs[0].plan.inputs]
    [('model.weight', 'static'), ('model.bias', 'static'), ('x', 'dynamic')]
    """
    config = config_or_default(config)
    plain = getattr(fn, "_orig_mod", None) or innermost(fn)
    run = torch.compile(plain, backend=backend(config))
    notes = () if runtime_of(config) is not None else ("there is no CUDA device: nothing is captured",)
    with observers.graphs() as heard, _quietly():
        for _ in range(3):
            _call(run, plain, args, kwargs)
    return CudagraphReport(tuple(each.use() for each in heard), notes)


@contextmanager
def _quietly() -> Iterator[None]:
    """What would be warned about is in the report."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DynxWarning)
        yield


def _call(run: Callable[..., Any], plain: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    results = [each for each in tree_leaves(run(*args, **kwargs)) if isinstance(each, torch.Tensor) and each.requires_grad]
    leaves = [each for each in tree_leaves((args, dict(kwargs))) if isinstance(each, torch.Tensor) and each.requires_grad]
    leaves += [each for module in modules_of(plain) for each in module.parameters() if each.requires_grad]
    if results and leaves:
        torch.autograd.grad(results, leaves, [torch.ones_like(each) for each in results], allow_unused=True)
