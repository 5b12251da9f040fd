"""Compile with a backend that is what it was keyed by, and with a cache of its own.

Torch matches a cache entry when its backend is the same object, or of the same type and equal. Entries are kept apart by
region (`isolate_recompiles`, from 2.13 on): a compiled function looks only at its own and at those without a region.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Hashable
from functools import cache
from types import CodeType, FunctionType, MethodType
from typing import Any

from dynx._torch.capabilities import capability

_ANSWERS = frozenset({"get_compiler_config"})  # what torch hangs on what it compiled


def torch_backend(backend: Any, **named: Any) -> Any:
    """Make what `torch.compile` makes of its arguments: the object that is called with each graph; None where it does nothing.

    Raises what it raises. Torch: the backend stands at the end of `_torchdynamo_orig_backend` of the callback that a compiled
    function closes over.
    """
    import torch
    from torch._dynamo.eval_frame import innermost_backend

    def nothing() -> None: ...

    compiled: Any = torch.compile(nothing, backend=backend, **named)
    if compiled is nothing:  # torch.compile is switched off, or an export is under way
        return None
    cells = dict(zip(compiled.__code__.co_freevars, compiled.__closure__, strict=True))
    return innermost_backend(cells["callback"].cell_contents)


def keyed_backend(backend: Any, key: Hashable) -> Any:
    """Make a copy of what `torch_backend` gives that is equal to nothing but itself, and carries `dynx_key`."""
    cls: Any = type(backend)
    copy = object.__new__(_keyed_class(cls))
    vars(copy).update(vars(backend), dynx_key=key)
    return copy


@cache  # of torch's own few classes
def _keyed_class(cls: Any) -> Any:
    own = {"__eq__": object.__eq__, "__hash__": object.__hash__, "__module__": cls.__module__, "__doc__": cls.__doc__}
    return type(cls.__name__, (cls,), own)


def key_of(backend: Any) -> Any:
    """Give the key of a keyed backend, also of one that torch has wrapped; None for any other."""
    from torch._dynamo.eval_frame import innermost_backend

    return getattr(innermost_backend(backend), "dynx_key", None)


def has_regions() -> bool:
    """Tell whether this torch keeps regions of cache entries apart."""
    import torch._dynamo.eval_frame

    return "isolate_recompiles" in inspect.signature(torch._dynamo.eval_frame._optimize).parameters


def compiler(
    backend: Any,
    *,
    fullgraph: bool,
    dynamic: bool | None,
    guard_filter_fn: Callable[..., Any] | None,
    recompile_limit: int | None,
    **more: Any,
) -> Callable[[Any], Any]:
    """Make what compiles a function with a keyed backend, with entries and a limit apart from those of other backends."""
    import torch

    capability("optimize").require()
    settings = {"nopython": fullgraph, "dynamic": dynamic, "guard_filter_fn": guard_filter_fn, **more}
    if has_regions():
        made: Any = torch._dynamo.optimize(backend, **settings, isolate_recompiles=True, recompile_limit=recompile_limit)
        return lambda fn: _in_region(made, backend, fn)
    made = torch._dynamo.optimize(backend, **settings)
    if recompile_limit is not None:
        limit = torch._dynamo.config._make_closure_patcher(recompile_limit=recompile_limit)
        made.enter_exit_hooks.append(limit)
    return lambda fn: made(_own_code(backend, fn))


def _in_region(made: Any, backend: Any, fn: Any) -> Any:
    """Compile in the region of the backend.

    All functions share one, but those whose code is torch's wrapper: built-in modules, which would share one limit.
    """
    regions = vars(backend).setdefault("dynx_regions", {})
    whose = getattr(fn, "__wrapped__", fn) if _has_code_of_torch(fn) else None
    made._isolate_recompiles_id = regions.setdefault(id(whose), (made._isolate_recompiles_id, whose))[0]
    return made(fn)


def _own_code(backend: Any, fn: Any) -> Any:
    """Copy a function, with code of its own for each backend, where torch keeps entries by code alone.

    A module is called through code that all modules share, and keeps it.
    """
    from torch._dynamo.external_utils import wrap_inline

    function = fn.__func__ if isinstance(fn, MethodType) else fn
    if getattr(function, "__code__", None) is _code_of_module_calls() or not callable(fn):
        return fn
    if not isinstance(function, FunctionType):
        fn = function = wrap_inline(fn)
    codes = vars(backend).setdefault("dynx_codes", {})
    whose = getattr(fn, "__wrapped__", fn) if _has_code_of_torch(fn) else function.__code__
    code = codes.setdefault(id(whose), (function.__code__.replace(), whose))[0]
    copy = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    functools.update_wrapper(copy, function)
    return MethodType(copy, fn.__self__) if isinstance(fn, MethodType) else copy


def _code_of_module_calls() -> CodeType:
    from torch.nn import Module

    return Module.__call__.__code__


def innermost(fn: Any) -> Any:
    """Give the function that a compiled one was made of; others as they are."""
    from torch._dynamo.eval_frame import innermost_fn

    return innermost_fn(fn)


def is_module(value: Any) -> bool:
    return is_module_class(type(value))


def optimized_module(module: Any, context: Any) -> Any:
    """Wrap a module as torch does; `context` compiles its call. Torch: `OptimizedModule`."""
    from torch._dynamo.eval_frame import OptimizedModule

    wrapped = OptimizedModule(innermost(module), context)
    wrapped._torchdynamo_orig_callable = wrapped._orig_mod.forward
    wrapped._torchdynamo_wrapper_id = id(wrapped)
    for name in _ANSWERS & vars(wrapped.forward).keys():
        setattr(wrapped, name, getattr(wrapped.forward, name))
    return wrapped


def compile_class(cls: Any, context: Callable[[Any], Any]) -> Any:
    """Compile the call of a class in place, as torch does when it decorates one."""
    cls.__call__ = context(cls.__call__)
    if is_module_class(cls):
        cls._call_impl = context(cls._call_impl)
    return cls


def is_module_class(cls: Any) -> bool:
    from torch.nn import Module

    return issubclass(cls, Module)


def pass_for_compiled(wrapper: Any, fn: Any, run: Any) -> None:
    """Mark a function as one that compiles `fn`, as `run` is: traced code then goes on in `fn`, and tools find it."""
    for name in _ANSWERS & vars(run).keys():
        setattr(wrapper, name, vars(run)[name])
    wrapper._torchdynamo_inline = fn
    wrapper._torchdynamo_orig_callable = fn
    wrapper._torchdynamo_wrapper_id = id(wrapper)


def _has_code_of_torch(fn: Any) -> bool:
    from torch._dynamo.external_utils import wrap_inline

    return getattr(fn, "__code__", None) in (None, wrap_inline(is_module).__code__)
