"""Determine whether Dynamo traces a function, and whether the function is already compiled."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any, TypeVar

from dynx._torch.compilation.unwrap import unwrap

Call = TypeVar("Call", bound=Callable[..., Any])


def why_not_traced(function: Any) -> str | None:
    """Return why torch's trace rules keep Dynamo from tracing the body of a function; None if they do not.

    Torch: `trace_rules.lookup`, which returns the class of the symbolic variable of a function.
    """
    from torch._dynamo import trace_rules

    variable_class = trace_rules.lookup(function)
    name = variable_class.__name__ if variable_class is not None else ""
    if "InGraph" in name:
        return "Dynamo puts its calls into the graph"
    return "torch's trace rules skip it" if "Skip" in name else None


def why_never_traced(function: FunctionType) -> str | None:
    """Return why Dynamo never traces a function: `torch.compiler.disable` or a trace rule of torch; None if it may trace it."""
    named = _named(function)
    if is_disabled(named) and unwrap(named).original is function:
        return f"torch.compiler.disable was applied to {function.__qualname__}"
    why = why_not_traced(function)
    return None if why is None else f"{function.__qualname__} is never traced: {why}"


def _named(function: FunctionType) -> Any:
    """Return the object to which a function's name refers now, such as its decorated form; None for an inner function."""
    value: Any = None
    scope = function.__globals__
    for name in function.__qualname__.split("."):
        value = scope.get(name)
        value = getattr(value, "__func__", value)  # the function of a static or class method
        scope = getattr(value, "__dict__", {})
    return value


def not_traced(function: Call) -> Call:
    """Wrap a function so that Dynamo does not trace it: compiled code that calls it breaks the graph and runs it eagerly."""
    import torch

    return torch.compiler.disable(function)


def is_disabled(function: Any) -> bool:
    """Return whether `torch.compiler.disable` returned this function. Torch: the attribute `_torchdynamo_disable`."""
    return bool(getattr(function, "_torchdynamo_disable", False))


def is_compiled_callable(function: Any) -> bool:
    """Return whether torch.compile or torch.compiler.disable returned this object. Torch: `_torchdynamo_orig_callable`."""
    from torch._dynamo.eval_frame import OptimizedModule

    return isinstance(function, OptimizedModule) or hasattr(function, "_torchdynamo_orig_callable")


def is_compiled(code: CodeType) -> bool:
    """Return whether a code object has entries in torch's cache, which run without tracing the function again."""
    from torch._dynamo.eval_frame import _debug_get_cache_entry_list

    return bool(_debug_get_cache_entry_list(code))
