"""Change how an unedited program compiles, for a trial: mark sizes as dynamic, or change the arguments of torch.compile.

Torch: the locals of the frame are an argument of `convert_frame._compile`, which reads marks on tensors while it traces.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from types import CodeType
from typing import Any

from dynx._torch.capabilities import hook_point, require
from dynx._torch.compilation.frame import compile_call
from dynx._torch.hooks import HookPoint, OnError, Subscription, Wrapping, subscribe, wrap

_COMPILE = HookPoint("torch.compile", "torch:compile", purpose="arguments of torch.compile that are tried")


def before_tracing(act: Callable[[CodeType, Mapping[str, Any]], None], on_error: OnError) -> Subscription:
    """Until the handle is removed, call `act` with code and locals of each frame before tracing; errors go to `on_error`."""

    def before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        call = compile_call(args, kwargs)
        act(call.code, call.locals)

    return subscribe(hook_point("compile"), before, on_error=on_error)


def mark_dynamic(tensor: Any, dim: int, *, is_required: bool) -> None:
    """Mark a dimension of a tensor as dynamic with torch's `mark_dynamic` if `is_required`, else with `maybe_mark_dynamic`."""
    require("mark_dynamic", "maybe_mark_dynamic")
    import torch

    mark = torch._dynamo.mark_dynamic if is_required else torch._dynamo.maybe_mark_dynamic
    mark(tensor, dim)


def with_arguments(arguments: Mapping[str, Any]) -> Wrapping:
    """Until the handle is removed, call torch.compile with these arguments, also where the program passes others."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **kwargs: original(*args, **{**kwargs, **arguments})

    return wrap(_COMPILE, make)


def instead_of_torch_compile(compile: Callable[..., Any]) -> Wrapping:
    """Replace torch.compile by `compile` until the handle is removed; within `compile`, torch.compile is the original."""
    is_inside = ContextVar("is_inside", default=False)

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def either(*args: Any, **kwargs: Any) -> Any:
            if is_inside.get():
                return original(*args, **kwargs)
            token = is_inside.set(True)
            try:
                return compile(*args, **kwargs)
            finally:
                is_inside.reset(token)

        return either

    return wrap(_COMPILE, make)
