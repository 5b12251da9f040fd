"""Train a function once under saved-tensor hooks, and compare its gradients with those of eager code without hooks."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext

import torch
from torch._functorch import config as functorch_config

from dynx import saved

# stores exactly, in another tensor, so that gradients are bit-equal and reports show where it was used
EXACT = saved.Codec("negated", torch.neg, torch.neg, "any", is_exact=True)


def exact_hooks(**options):
    """Return hooks that store every activation but integers and masks exactly, as another tensor."""
    floating = (torch.float32, torch.float64, torch.bfloat16, torch.complex64)
    return saved.hooks(saved.rule(EXACT, dtype=floating, **options))


@contextmanager
def graphs_saved():
    """Yield a list to which the record of each graph that is compiled in this context is appended."""
    graphs: list[saved.SavedGraph] = []
    # on a hit in the cache on disk there is no graph to see
    with functorch_config.patch(enable_autograd_cache=False), saved.SavedGraphs(graphs.append):
        yield graphs


def gradients(fn, *inputs, hooks=None, parameters=(), seed=0):
    """Return the loss and the gradients of inputs and parameters; the loss is the sum of all outputs' squares."""
    leaves = [value.detach().clone().requires_grad_(value.requires_grad) for value in inputs]
    for parameter in parameters:
        parameter.grad = None
    torch.manual_seed(seed)
    with hooks if hooks is not None else nullcontext():
        loss = loss_of(fn(*leaves))
    if loss.requires_grad:
        loss.backward()
    return [loss.detach(), *(leaf.grad for leaf in (*leaves, *parameters))]


def loss_of(outputs):
    """Return the sum of squares of all floating-point outputs."""
    leaves = [leaf for leaf in torch.utils._pytree.tree_leaves(outputs) if isinstance(leaf, torch.Tensor)]
    return sum(leaf.abs().float().square().sum() for leaf in leaves if leaf.is_floating_point() or leaf.is_complex())


def relative_error(actual, expected):
    """Return the norm of the difference of all gradients, relative to the norm of the expected ones."""
    pairs = [
        (a.double().flatten(), b.double().flatten()) for a, b in zip(actual[1:], expected[1:], strict=True) if b is not None
    ]
    a, b = (torch.cat(side) for side in zip(*pairs, strict=True))
    return ((a - b).norm() / b.norm()).item()
