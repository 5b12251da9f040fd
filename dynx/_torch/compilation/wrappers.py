"""What torch.compile wraps around functions, methods and modules: recognize it and build it; `unwrap` sees through it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import CodeType, MethodType
from typing import Any


def before_forward(module: Any) -> str | None:
    """Say why the arguments of `forward` are unknown before the call: hooks may change them, and are not run to see how."""
    from torch.nn.modules import module as torch_module

    name = type(module).__qualname__
    if torch_module._global_forward_pre_hooks:
        return "global forward pre-hooks may change the arguments"
    if vars(module).get("_forward_pre_hooks"):
        return f"forward pre-hooks of {name} may change the arguments"
    return f"{name} has parameters that its first call makes" if hasattr(module, "_initialize_hook") else None


def is_shared(code: CodeType) -> bool:
    """Tell whether code is that of torch's wrapper around modules and functions of its own, and around objects."""
    shared = shared_code()  # and copies of it
    return (code.co_filename, code.co_firstlineno) == (shared.co_filename, shared.co_firstlineno)


@cache
def shared_code() -> CodeType:
    from torch._dynamo.external_utils import wrap_inline

    return wrap_inline(is_shared).__code__


def is_module_call(fn: Any) -> bool:
    """Tell whether calling it runs the hooks of a module, then its `forward`; torch does not compile the part before that."""
    from torch.nn import Module

    return isinstance(fn, MethodType) and fn.__func__.__code__ in (_code_of_module_calls(), Module._call_impl.__code__)


def _code_of_module_calls() -> CodeType:
    from torch.nn import Module

    return Module.__call__.__code__


def optimized_module(module: Any, context: Any) -> Any:
    """Wrap a module as torch does; `context` compiles its call. Torch: `OptimizedModule`."""
    from torch._dynamo.eval_frame import OptimizedModule

    wrapped = OptimizedModule(module, context)
    wrapped._torchdynamo_orig_callable = module.forward
    wrapped._torchdynamo_wrapper_id = id(wrapped)
    if hasattr(wrapped.forward, "get_compiler_config"):
        wrapped.get_compiler_config = wrapped.forward.get_compiler_config
    return wrapped


def compile_class(cls: Any, context: Callable[[Any], Any]) -> Any:
    """Compile the call of a class in place, as torch does when it decorates one."""
    from torch.nn import Module

    cls.__call__ = context(cls.__call__)
    if issubclass(cls, Module):
        cls._call_impl = context(cls._call_impl)
    return cls


def pass_for_compiled(wrapper: Any, fn: Any, run: Any) -> None:
    """Mark a function as one that compiles `fn`, as `run` is: traced code then goes on in `fn`, and tools find it."""
    inner = vars(run).get("_torchdynamo_orig_callable")
    for name, value in vars(run).items():
        if name not in ("__wrapped__", "_torchdynamo_wrapper_id"):
            setattr(wrapper, name, fn if value is inner else value)
    wrapper._torchdynamo_wrapper_id = id(wrapper)


def has_code_of_torch(fn: Any) -> bool:
    """Return whether Dynamo compiles torch's wrapper around a callable, instead of code of the callable's own."""
    return getattr(fn, "__code__", None) in (None, shared_code())
