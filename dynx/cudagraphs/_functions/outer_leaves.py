"""Refuse training steps if a replay would lose gradients of arguments, or of leaf tensors that outlive the loss.

A leaf tensor that the loss creates, such as the interpolated sample of a gradient penalty, is accepted: it is freed after the
backward pass, together with its gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import ref

import torch
from torch.utils._pytree import tree_leaves

from dynx.cudagraphs._functions.arguments import argument_names
from dynx.cudagraphs._functions.autograd_tape import unknown_leaves
from dynx.errors import UsageError


def check_arguments(
    loss_fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], params: Sequence[torch.Tensor]
) -> None:
    """Raise UsageError if an argument is a parameter that is trained, or was computed from tensors that need gradients.

    A replay reads a copy of the argument, so no gradient would reach the parameter or these tensors.
    """
    leaves = tree_leaves((args, dict(kwargs)))
    if not any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in leaves):
        return
    trained = {id(param) for param in params if param.requires_grad}
    for name, leaf in zip(argument_names(loss_fn, args, kwargs), leaves, strict=True):
        if id(leaf) in trained:
            raise UsageError(
                f"argument {name} of the training step is a parameter that it trains, and would get no gradient\n"
                "  reference it from the closure of the loss instead"
            )
        if isinstance(leaf, torch.Tensor) and not leaf.is_leaf:
            raise UsageError(
                f"argument {name} of the training step was computed from tensors that would get no gradient\n"
                "  compute it in the loss, or detach it"
            )


def outer_leaves_check(loss: torch.Tensor, params: Sequence[torch.Tensor]) -> Callable[[], None]:
    """Return a function to call after the backward pass, when the autograd graph of the loss has been freed.

    The function raises UsageError if a leaf tensor of that graph is alive and not among `params`. Such a tensor is the user's:
    each replay would add to the `.grad` that the capture created, not to its present `.grad`. The function first restores
    the `.grad` that the tensor had before the backward pass.
    """
    leaves = [(ref(leaf), leaf.grad) for leaf in unknown_leaves([loss], params)]

    def check() -> None:
        alive = [(tensor, gradient) for reference, gradient in leaves if (tensor := reference()) is not None]
        for tensor, gradient in alive:
            tensor.grad = gradient
        for tensor, _ in alive:
            size = tuple(tensor.size())
            raise UsageError(
                f"the loss has a gradient for a tensor of size {size} that is not among the parameters passed to train_step\n"
                "  pass it too, or detach it, or set its requires_grad to False"
            )

    return check
