"""Recognize and build the wrappers that torch.compile puts around functions, methods and modules (see `unwrap`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import CellType, CodeType, MethodType
from typing import Any


def cells_of(compiled: Any) -> dict[str, CellType]:
    """Return the closure cells of a function, such as torch's wrapper of compiled code, by variable name; {} for others."""
    code = getattr(compiled, "__code__", None)
    return dict(zip(code.co_freevars, compiled.__closure__ or (), strict=True)) if isinstance(code, CodeType) else {}


def before_forward(module: Any) -> str | None:
    """Return why dynx cannot know before a module's call which arguments its `forward` will get; None if it can.

    Forward pre-hooks may change the arguments. dynx does not run them to find out, since they may have side effects.
    """
    from torch.nn.modules import module as torch_module

    name = type(module).__qualname__
    if torch_module._global_forward_pre_hooks:
        return "global forward pre-hooks may change the arguments"
    if vars(module).get("_forward_pre_hooks"):
        return f"forward pre-hooks of {name} may change the arguments"
    return f"{name} has parameters that its first call initializes" if hasattr(module, "_initialize_hook") else None


def after_forward(module: Any) -> list[str]:
    """Return the names of the forward hooks that run after a module's `forward`; Dynamo compiles each hook separately."""
    from torch.nn.modules import module as torch_module

    hooks = [*torch_module._global_forward_hooks.values(), *vars(module).get("_forward_hooks", {}).values()]
    return [str(getattr(hook, "__qualname__", type(hook).__qualname__)) for hook in hooks]


def is_shared(code: CodeType) -> bool:
    """Return whether a code object is that of torch's `wrap_inline`, shared by all callables that Dynamo wraps in it."""
    shared = shared_code()  # compared by source location, so that copies of it count too
    return (code.co_filename, code.co_firstlineno) == (shared.co_filename, shared.co_firstlineno)


@cache
def shared_code() -> CodeType:
    """Return the code object that all wrappers made by torch's `external_utils.wrap_inline` share."""
    from torch._dynamo.external_utils import wrap_inline

    return wrap_inline(is_shared).__code__


def is_module_call(fn: Any) -> bool:
    """Return whether a callable is the bound `__call__` or `_call_impl` of a module, which runs hooks and `forward`."""
    return isinstance(fn, MethodType) and is_module_call_code(fn.__func__.__code__)


def is_module_call_code(code: CodeType) -> bool:
    """Return whether a code object is that of `Module.__call__` or `Module._call_impl`."""
    from torch.nn import Module

    return code in (Module.__call__.__code__, Module._call_impl.__code__)


def optimized_module(module: Any, context: Any) -> Any:
    """Wrap a module in an `OptimizedModule`, as torch.compile does; `context` compiles the module's call."""
    from torch._dynamo.eval_frame import OptimizedModule

    wrapped = OptimizedModule(module, context)
    wrapped._torchdynamo_orig_callable = module.forward
    wrapped._torchdynamo_wrapper_id = id(wrapped)
    if hasattr(wrapped.forward, "get_compiler_config"):
        wrapped.get_compiler_config = wrapped.forward.get_compiler_config
    return wrapped


def compile_class(cls: Any, context: Callable[[Any], Any]) -> Any:
    """Compile the `__call__` of a class in place with `context`, as torch.compile does when it decorates a class."""
    from torch.nn import Module

    cls.__call__ = context(cls.__call__)
    if issubclass(cls, Module):
        cls._call_impl = context(cls._call_impl)
    return cls


def pass_for_compiled(wrapper: Any, fn: Any, run: Any) -> None:
    """Make torch treat `wrapper` as compiled: copy the attributes that torch.compile gave `run`, the compiled form of `fn`.

    When traced code calls the wrapper, Dynamo then traces `fn`, and tools find `fn` through the wrapper.
    """
    inner = vars(run).get("_torchdynamo_orig_callable")
    for name, value in vars(run).items():
        if name not in ("__wrapped__", "_torchdynamo_wrapper_id"):
            setattr(wrapper, name, fn if value is inner else value)
    wrapper._torchdynamo_wrapper_id = id(wrapper)


def has_code_of_torch(fn: Any) -> bool:
    """Return whether Dynamo compiles `fn` through torch's `wrap_inline`, because `fn` has no code object of its own."""
    return getattr(fn, "__code__", None) in (None, shared_code())
