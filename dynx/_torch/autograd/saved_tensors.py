"""Find out whether saved-tensor hooks are active on the current thread, and choose which of them Dynamo sees.

Torch: `_top_saved_tensors_default_hooks` and `_saved_tensors_hooks_is_enabled` of `torch._C._autograd`, and
`DisabledSavedTensorsHooksVariable`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

from dynx._torch import hooks
from dynx._torch.capabilities import hook_point
from dynx.errors import DynxError

_IGNORE_TRACING = False  # the argument `ignore_is_tracing`, which is positional
IsOurs = Callable[[Any], bool]  # takes the top pair of hooks; returns whether it is of dynx


def hooks_are_set() -> bool:
    """Return whether `torch.autograd.graph.saved_tensors_hooks` are active on this thread.

    False while a compiled graph with inlined hooks runs, because AOTAutograd disables the hooks meanwhile.
    """
    autograd = torch._C._autograd
    return autograd._top_saved_tensors_default_hooks(_IGNORE_TRACING) is not None and autograd._saved_tensors_hooks_is_enabled()


def hide_without_grad(is_ours: IsOurs) -> hooks.Wrapping:
    """Hide dynx's saved-tensor hooks from Dynamo while gradients are disabled, to avoid recompiles; return a handle.

    Without gradients no tensor is saved, but Dynamo guards on the hooks: when they become active, it would recompile into the
    same graph. The hooks are not hidden from AOTAutograd, which itself disables gradients while it compiles a graph that will
    save tensors. `is_ours` takes the active pair of hooks and returns whether it is dynx's.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def visible(*args: Any) -> Any:
            top = original(*args)
            is_hidden = top is not None and not torch.is_grad_enabled() and is_ours(top) and _is_read_by_dynamo()
            return None if is_hidden else top

        return visible

    return hooks.wrap(hook_point("visible_hooks"), make)


def _is_read_by_dynamo() -> bool:
    """Return whether the function that is currently calling `top_saved_tensors_hooks` belongs to `torch._dynamo`."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "top_saved_tensors_hooks":
        frame = frame.f_back
    caller = None if frame is None else frame.f_back
    return caller is not None and str(caller.f_globals.get("__name__", "")).startswith("torch._dynamo.")


def refuse_transforms(is_ours: IsOurs, error: Callable[[], DynxError]) -> hooks.Wrapping:
    """Raise `error()` when Dynamo traces `torch.func.grad` while dynx's saved-tensor hooks are active; return a handle.

    Torch raises too, but only after it has disabled saved-tensor hooks on this thread, and does not enable them again.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(variable: Any, tx: Any, values: Any) -> Any:
            top = torch._C._autograd._top_saved_tensors_default_hooks(not _IGNORE_TRACING)
            if values[0] is not None and top is not None and is_ours(top):
                raise error()
            return original(variable, tx, values)

        return call

    return hooks.wrap(hook_point("disable_saved_hooks"), make)


def own_error(error: BaseException | None) -> DynxError | None:
    """Return dynx's error that Dynamo wrapped in an `InternalTorchDynamoError`; None for other errors."""
    from torch._dynamo.exc import InternalTorchDynamoError

    cause = error.__cause__ or error.__context__ if isinstance(error, InternalTorchDynamoError) else None
    return cause if isinstance(cause, DynxError) else None
