"""Properties of optimizers, gradient scalers and hooks that decide whether a training step can be captured in a CUDA graph.

Torch: `Optimizer._step_supports_amp_scaling`, `_optimizer_step_pre_hooks` and `_optimizer_step_post_hooks`, the global step
hooks in `torch.optim.optimizer`, `GradScaler` in `torch/amp/grad_scaler.py`, and the hooks of tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import torch.optim.optimizer as _all_optimizers


def takes_found_inf(optimizer: Any) -> bool:
    """Return whether an optimizer takes `found_inf` as a tensor; for others `GradScaler` synchronizes to read it on the CPU."""
    return bool(getattr(optimizer, "_step_supports_amp_scaling", False))


def step_hooks_check(optimizers: Sequence[Any]) -> Callable[[], bool]:
    """Return a fast predicate that is true while step hooks are registered, on one of the optimizers or globally."""
    names = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
    own = [hooks for optimizer in optimizers for name in names if (hooks := vars(optimizer).get(name)) is not None]
    hooks = [_all_optimizers._global_optimizer_pre_hooks, _all_optimizers._global_optimizer_post_hooks, *own]
    return lambda: any(hooks)


def gradient_hooks_check(parameters: Sequence[Any]) -> Callable[[], bool]:
    """Return a fast predicate that is true while any of the parameters has a gradient hook.

    Such hooks are added by `register_hook` and `register_post_accumulate_grad_hook`.
    """
    return lambda: any(map(_hooks, parameters)) or any(map(_later_hooks, parameters))


_hooks, _later_hooks = attrgetter("_backward_hooks"), attrgetter("_post_accumulate_grad_hooks")


def has_hooks(module: Any) -> bool:
    """Return whether a module itself has forward or backward hooks or pre-hooks; global hooks do not count."""
    return bool(module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks)


def forget_stages(scaler: Any) -> None:
    """Clear a `GradScaler`'s per-optimizer state, as if neither `unscale_` nor `step` was called since the last `update`."""
    scaler._per_optimizer_states.clear()
