"""What can be known of optimizers, gradient scalers and hooks before they are captured in a CUDA graph.

Torch: `Optimizer._step_supports_amp_scaling`, `_optimizer_step_pre_hooks` and `_optimizer_step_post_hooks`, `GradScaler` in
`torch/amp/grad_scaler.py`, and the hooks of tensors; alike in 2.11, 2.13 and 2.15.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any


def takes_found_inf(optimizer: Any) -> bool:
    """Tell whether an optimizer takes what a scaler found as a tensor; for others the scaler reads it on the CPU."""
    return bool(getattr(optimizer, "_step_supports_amp_scaling", False))


def has_step_hooks(optimizer: Any) -> bool:
    return bool(optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks)


def has_gradient_hooks(parameter: Any) -> bool:
    return are_hooked([parameter])()


def are_hooked(parameters: Sequence[Any]) -> Callable[[], bool]:
    """Give what tells quickly whether one of some parameters has a hook on its gradient."""
    return lambda: any(map(_hooks, parameters)) or any(map(_later_hooks, parameters))


_hooks, _later_hooks = attrgetter("_backward_hooks"), attrgetter("_post_accumulate_grad_hooks")


def has_hooks(module: Any) -> bool:
    """Tell whether a module calls hooks when it runs forward or backward."""
    return bool(module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks)


def forget_stages(scaler: Any) -> None:
    """Have a scaler forget a step that was begun and not ended."""
    scaler._per_optimizer_states.clear()
