"""Replace the parameters and buffers of modules while a function is captured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn


def leaf_of(param: torch.Tensor) -> torch.Tensor:
    """Return a new autograd leaf that shares the memory of a parameter; the parameter itself if it must not be replaced.

    The AccumulateGrad node of a parameter runs on the stream on which the parameter was first used. If results of an earlier
    call keep that node alive, a capture, which uses a stream of its own, would have to wait for that stream, which fails.
    """
    return nn.Parameter(param.detach()) if may_be_replaced(param) else param


def may_be_replaced(param: torch.Tensor) -> bool:
    """Return whether a new nn.Parameter can replace this one unnoticed: no subclass, no attributes, and requires_grad."""
    return type(param) is nn.Parameter and not param.__dict__ and param.requires_grad


@contextmanager
def leaves_in(modules: Sequence[nn.Module]) -> Iterator[dict[torch.Tensor, torch.Tensor]]:
    """Replace the modules' parameters by new leaf tensors over the same memory; yields a dict from parameter to leaf."""
    leaves = {param: leaf_of(param) for module in modules for param in module.parameters()}
    with replaced_in(modules, leaves):
        yield leaves


def tensors_of(modules: Sequence[nn.Module]) -> list[torch.Tensor]:
    """Return the parameters and buffers of modules, each once."""
    return list(dict.fromkeys(tensor for module in modules for tensor in (*module.parameters(), *module.buffers())))


_FLAT = "_flat_weights", "_flat_weight_refs"  # attributes that `nn.RNNBase` rebuilds for new parameters


@contextmanager
def replaced_in(modules: Sequence[nn.Module], replacements: Mapping[torch.Tensor, torch.Tensor]) -> Iterator[None]:
    """Replace parameters and buffers of modules inside of the context, and restore them at its end."""
    inner = [module for outer in modules for module in outer.modules()]
    dicts: list[dict[str, Any]] = [d for module in inner for d in (module._parameters, module._buffers)]
    replaced = [(d, name, tensor) for d in dicts for name, tensor in d.items() if tensor in replacements]
    recurrent = [vars(module) for module in inner if isinstance(module, nn.RNNBase)]
    before = [(attributes, name, attributes[name]) for attributes in recurrent for name in _FLAT if name in attributes]
    try:
        for d, name, tensor in replaced:
            d[name] = replacements[tensor]
        yield
    finally:
        for d, name, tensor in replaced:
            if d.get(name) is replacements[tensor]:  # otherwise the function has assigned another parameter
                d[name] = tensor
        for attributes, name, value in before:
            attributes[name] = value
