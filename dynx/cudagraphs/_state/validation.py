"""Raise UsageError for parameters, hooks, optimizers and options that `train_step` and `graphed` cannot record."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from dynx._torch.autograd.hooks_and_scalers import gradient_hooks_check, has_hooks, step_hooks_check, takes_found_inf
from dynx.cudagraphs._config import Config
from dynx.cudagraphs._search.optimizers import tensors_in_state
from dynx.errors import UsageError

Named = tuple[str, torch.Tensor]

_WRAPPERS = (nn.parallel.DistributedDataParallel, nn.DataParallel)


def check_for_training(config: Config) -> None:
    """Raise UsageError for the options that a training step does not support: `buckets` and `params="patch"`."""
    if config.params == "patch":
        raise UsageError("params='patch' works only for graphs without gradients\n  leave out params=")
    if config.buckets:
        raise UsageError("buckets work only with cudagraphs.fast_path\n  leave out buckets")


def check_numbers(accumulate: int, clip_grad_norm: float | None) -> None:
    """Raise UsageError if `accumulate` is below 1 or `clip_grad_norm` is not above 0: nothing would be trained."""
    if not isinstance(accumulate, int) or accumulate < 1:
        raise UsageError(f"accumulate={accumulate} is not a positive number of calls\n  pass an integer of at least 1")
    if clip_grad_norm is not None and not clip_grad_norm > 0:
        raise UsageError(f"clip_grad_norm={clip_grad_norm} is not a positive norm\n  pass a norm above 0, or None")


def named_params(params: Iterable[Any]) -> list[Named]:
    """Return pairs of name and parameter; parameters that were passed without names are named by their index.

    Raises UsageError for objects that are not parameters, and if no parameter requires grad.
    """
    if isinstance(params, nn.Module):
        raise UsageError(f"params is a module of type {type(params).__name__}\n  pass its parameters()")
    named = [(str(index), item) if isinstance(item, torch.Tensor) else item for index, item in enumerate(params)]
    for item in named:
        if not (isinstance(item, tuple) and len(item) == 2 and isinstance(item[1], torch.Tensor)):
            kind = type(item).__name__
            raise UsageError(f"params contains a {kind}, not a parameter\n  pass parameters() or named_parameters()")
    if not any(param.requires_grad for _, param in named):
        raise UsageError("no parameter that was passed to train_step requires grad\n  pass model.parameters()")
    return named


def check_examples(examples: Sequence[Any], device: torch.device | None) -> None:
    """Raise UsageError if the examples contain an optimizer, scaler or Config, or a tensor on another device than `device`."""
    for example in examples:
        if isinstance(example, (torch.optim.Optimizer, torch.amp.GradScaler, Config)):
            kind = type(example).__name__
            raise UsageError(f"a {kind} was passed as an example\n  pass it by keyword: optimizer=, scaler= or config=")
    for leaf in tree_leaves(examples):
        if device is not None and isinstance(leaf, torch.Tensor) and leaf.device != device:
            raise UsageError(f"an example argument is on {leaf.device}, not on {device}\n  move it to {device}")


def check_parameters(named: Sequence[Named], device: torch.device) -> None:
    """Raise UsageError for the first parameter that a replay could not train."""
    for name, param in named:
        if why := _why_not_trainable(param, device):
            raise UsageError(f"the backward pass cannot be captured: parameter {name} {why}")


def _why_not_trainable(param: torch.Tensor, device: torch.device) -> str:
    kind = type(param)
    if kind.__name__ == "DTensor" or any(base.__name__ == "FlatParameter" for base in kind.__mro__):
        return f"is a {kind.__name__}: FSDP gathers it from other ranks, a replay does not\n  use torch.compile instead"
    if not param.is_leaf:
        return "is not a leaf, so its gradient is not kept\n  pass the leaves that it is computed from"
    if param.device != device:
        return f"is on {param.device}\n  move the model to {device}"
    if gradient_hooks_check([param])():
        return "has a gradient hook, which a replay would not call\n  remove the hook"
    return ""


def check_modules(modules: Sequence[nn.Module]) -> None:
    """Raise UsageError for buffers that require grad, and for hooks of submodules, which a replay would not call."""
    for module in modules:
        for name, buffer in module.named_buffers():
            if buffer.requires_grad:
                raise UsageError(f"buffer {name} requires grad, but only parameters get gradients\n  make it a parameter")
        for name, submodule in module.named_modules():
            if name and has_hooks(submodule):
                raise UsageError(
                    f"submodule {name} has a hook, which a replay would not call\n  remove it, or set it on the outer module"
                )


def check_optimizer(optimizer: torch.optim.Optimizer, named: Sequence[Named] | None, scaler: Any, accumulate: int = 1) -> None:
    """Raise UsageError if the step of the optimizer cannot be captured.

    `named` are the parameters to train; None for an optimizer inside another one. A step has `accumulate` calls.
    """
    kind = type(optimizer).__name__
    if accumulate > 1 and isinstance(optimizer, torch.optim.SparseAdam):
        raise UsageError("with accumulate above 1, gradients are dense, which SparseAdam rejects\n  use accumulate=1")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise UsageError("LBFGS calls the loss as often as it needs to, which a replay cannot do\n  use another optimizer")
    if step_hooks_check([optimizer])():
        raise UsageError(f"{kind} has step hooks, which a replay would not call\n  remove the hooks")
    passed = None if named is None else {id(param) for _, param in named}
    for number, group in enumerate(optimizer.param_groups):
        optimizer_group, on_cuda = f"{kind} (group {number})", any(param.is_cuda for param in group["params"])
        if on_cuda and group.get("capturable") is False:
            raise UsageError(f"{optimizer_group} counts its steps in a CPU tensor\n  create it with capturable=True")
        for name, value in group.items():
            if on_cuda and isinstance(value, torch.Tensor) and value.device.type == "cpu":
                raise UsageError(
                    f"the tensor {name} of {optimizer_group} is on the CPU\n  create it on the device, or pass a number"
                )
        if on_cuda and any(tensor.device.type == "cpu" for tensor in tensors_in_state([optimizer], group["params"])):
            raise UsageError(f"{optimizer_group} counts its steps on the CPU\n  use an optimizer that has capturable=True")
        if passed is not None and any(id(param) not in passed for param in group["params"] if param.requires_grad):
            raise UsageError(f"{optimizer_group} has parameters that were not passed to train_step\n  pass all of them")
    if scaler is not None and not takes_found_inf(optimizer):
        raise UsageError(f"the scaler checks on the CPU whether {kind} may step\n  create the optimizer with fused=True")


def check_wrappers(named: Sequence[Named]) -> None:
    """Raise UsageError if any DDP or DataParallel module that exists in the process wraps one of the parameters."""
    params = {id(param) for _, param in named}
    for wrapper in (value for value in gc.get_objects() if issubclass(type(value), _WRAPPERS)):
        if any(id(param) in params for param in wrapper.parameters()):
            kind = type(wrapper).__name__
            raise UsageError(f"the parameters belong to a {kind}, whose hooks a replay skips\n  use torch.compile instead")
