"""What cannot be part of a recorded training step or a graphed module, by name."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from dynx._torch.autograd.hooks_and_scalers import has_gradient_hooks, has_hooks, has_step_hooks, takes_found_inf
from dynx.cudagraphs._config import Config
from dynx.errors import UsageError

Named = tuple[str, torch.Tensor]

_WRAPPERS = (nn.parallel.DistributedDataParallel, nn.DataParallel)


def check_for_training(config: Config) -> None:
    """Raise UsageError for options of what has no gradients."""
    if config.params == "patch":
        raise UsageError("params='patch' is for graphs without gradients\n  leave it out")
    if config.buckets:
        raise UsageError("buckets are for cudagraphs.fast_path\n  leave them out")


def check_numbers(accumulate: int, clip_grad_norm: float | None) -> None:
    """Raise UsageError for numbers with which nothing is trained."""
    if not isinstance(accumulate, int) or accumulate < 1:
        raise UsageError(f"accumulate={accumulate} does no step\n  give a number of calls, at least 1")
    if clip_grad_norm is not None and not clip_grad_norm > 0:
        raise UsageError(f"clip_grad_norm={clip_grad_norm} leaves nothing to train with\n  give a norm above 0, or None")


def named_of(params: Iterable[Any]) -> list[Named]:
    """Name parameters that have no names by their places. Raises UsageError for what is no parameters, or none to train."""
    if isinstance(params, nn.Module):
        raise UsageError(f"params is a {type(params).__name__}\n  give its parameters()")
    named = [(str(number), each) if isinstance(each, torch.Tensor) else each for number, each in enumerate(params)]
    for each in named:
        if not (isinstance(each, tuple) and len(each) == 2 and isinstance(each[1], torch.Tensor)):
            raise UsageError(f"a {type(each).__name__} stands among params\n  give parameters() or named_parameters()")
    if not any(each.requires_grad for _, each in named):
        raise UsageError("train_step was given no parameters that need gradients\n  give model.parameters()")
    return named


def check_examples(examples: Sequence[Any], device: torch.device | None) -> None:
    """Raise UsageError for examples that were meant for another argument, or lie on another device."""
    for each in examples:
        if isinstance(each, (torch.optim.Optimizer, torch.amp.GradScaler, Config)):
            kind = type(each).__name__
            raise UsageError(f"a {kind} stands among the examples\n  give it by name: optimizer=, scaler= or config=")
    for each in tree_leaves(examples):
        if device is not None and isinstance(each, torch.Tensor) and each.device != device:
            raise UsageError(f"an example is on {each.device}\n  move it to {device}")


def check_parameters(named: Sequence[Named], device: torch.device) -> None:
    """Raise UsageError for the first parameter that a recording cannot train."""
    for name, each in named:
        if why := _what_is_wrong(each, device):
            raise UsageError(f"parameter {name} {why}")


def _what_is_wrong(parameter: torch.Tensor, device: torch.device) -> str:
    kind = type(parameter)
    if kind.__name__ == "DTensor" or any(each.__name__ == "FlatParameter" for each in kind.__mro__):
        return f"is a {kind.__name__}: FSDP gathers it from other processes, a replay does not\n  use torch.compile instead"
    if not parameter.is_leaf:
        return "is computed from others, so its gradient is not kept\n  give the leaves"
    if parameter.device != device:
        return f"is on {parameter.device}\n  move the model to {device}"
    if has_gradient_hooks(parameter):
        return "has a hook on its gradient, which a replay would not call\n  remove the hook"
    return ""


def check_modules(modules: Sequence[nn.Module]) -> None:
    """Raise UsageError for what a module has that a replay would not do."""
    for top in modules:
        for name, each in top.named_buffers():
            if each.requires_grad:
                raise UsageError(f"buffer {name} needs gradients\n  make it a parameter")
        for name, each in top.named_modules():
            if name and has_hooks(each):
                raise UsageError(
                    f"submodule {name} has a hook, which a replay would not call\n  remove it, or put it on the module"
                )


def check_optimizer(optimizer: torch.optim.Optimizer, named: Sequence[Named], scaler: Any, accumulate: int = 1) -> None:
    """Raise UsageError where an optimizer cannot be recorded."""
    kind = type(optimizer).__name__
    if accumulate > 1 and isinstance(optimizer, torch.optim.SparseAdam):
        raise UsageError("gradients that add up over calls are dense, which SparseAdam does not take\n  use accumulate=1")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise UsageError("LBFGS calls the loss as often as it needs, which a replay cannot\n  use another optimizer")
    if has_step_hooks(optimizer):
        raise UsageError(f"{kind} has hooks on its step, which a replay would not call\n  remove the hooks")
    given = {id(each): name for name, each in named}
    for number, group in enumerate(optimizer.param_groups):
        on_cuda = any(each.is_cuda for each in group["params"])
        if on_cuda and group.get("capturable") is False:
            raise UsageError(f"{kind} (group {number}) counts its steps on the CPU\n  make it with capturable=True")
        for name, value in group.items():
            if on_cuda and isinstance(value, torch.Tensor) and value.device.type == "cpu":
                raise UsageError(f"{name} of {kind} (group {number}) is on the CPU\n  make it on the device, or a number")
        if on_cuda and any(each.device.type == "cpu" for each in _kept_for(group["params"], optimizer)):
            raise UsageError(f"{kind} (group {number}) counts its steps on the CPU\n  use one that has capturable=True")
        if any(id(each) not in given for each in group["params"] if each.requires_grad):
            raise UsageError(f"{kind} (group {number}) has parameters that train_step was not given\n  give all of them")
    if scaler is not None and not takes_found_inf(optimizer):
        raise UsageError(f"the scaler would read on the CPU whether {kind} may step\n  make it with fused=True")


def _kept_for(params: Sequence[torch.Tensor], optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Give the tensors that an optimizer has made for parameters so far; Adagrad makes them at once."""
    states = [optimizer.state.get(each) for each in params]
    return [value for each in states if isinstance(each, dict) for value in each.values() if isinstance(value, torch.Tensor)]


def check_wrappers(named: Sequence[Named]) -> None:
    """Raise UsageError where parameters belong to a module that talks to other processes, whoever calls it."""
    ours = {id(each) for _, each in named}
    for found in (each for each in gc.get_objects() if issubclass(type(each), _WRAPPERS)):
        if any(id(each) in ours for each in found.parameters()):
            kind = type(found).__name__
            raise UsageError(
                f"the parameters belong to a {kind}, whose hooks a replay does not run\n  use torch.compile instead"
            )
