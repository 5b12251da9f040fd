"""Compile with a backend that is what it was keyed by, and with a cache of its own.

Torch matches a cache entry when its backend is the same object, or of the same type and equal. Entries are kept apart by
region (`isolate_recompiles`, from 2.13 on): a compiled function looks only at its own and at those without a region.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Hashable, Iterator
from functools import cache
from types import CodeType, FunctionType, MethodType
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from dynx._torch.capabilities import capability


def torch_backend(backend: Any, **named: Any) -> Any:
    """Make what `torch.compile` makes of its arguments: the object that is called with each graph; None where it does nothing.

    Raises what it raises. Torch: the backend stands at the end of `_torchdynamo_orig_backend` of the callback that a compiled
    function closes over.
    """
    import torch
    from torch._dynamo.eval_frame import cached_backends, innermost_backend

    def nothing() -> None: ...

    known = set(cached_backends)
    compiled: Any = torch.compile(nothing, backend=backend, **named)
    if compiled is nothing:  # torch.compile is switched off, or an export is under way
        return None
    cells = dict(zip(compiled.__code__.co_freevars, compiled.__closure__, strict=True))
    made = innermost_backend(cells["callback"].cell_contents)
    if id(made) not in known:
        cached_backends.pop(id(made), None)  # what is made of it is reset in its place
    return made


def keyed_backend(backend: Any, key: Any, key_now: Callable[[], Hashable]) -> Any:
    """Make a copy of what `torch_backend` gives that is equal to nothing but itself, and carries its key.

    Should `key_now` have become another value when it compiles, the copy is not shared any more.
    """
    cls: Any = type(backend)
    copy = object.__new__(_keyed_class(cls))
    vars(copy).update(vars(backend), dynx_key=key, dynx_key_now=key_now, dynx_is_shared=True)
    _keyed.add(copy)
    return copy


_keyed: WeakSet[Any] = WeakSet()  # backends that live


@cache  # of torch's own few classes
def _keyed_class(cls: Any) -> Any:
    def compile_graph(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.dynx_is_shared = self.dynx_is_shared and self.dynx_key_now() == self.dynx_key.value
        return cls.__call__(self, *args, **kwargs)

    def is_same(self: Any, other: Any) -> bool:  # torch's own class must not be asked: it finds equal what was given the same
        return self is other

    own = {"__eq__": is_same, "__hash__": object.__hash__, "__module__": cls.__module__, "__doc__": cls.__doc__}
    return type(cls.__name__, (cls,), {**own, "__call__": compile_graph})


def shared_key(backend: Any) -> Hashable | None:
    """Give the value of a keyed backend's key, None when it is not what it was made for any more."""
    key: Hashable = backend.dynx_key.value
    return key if backend.dynx_is_shared and backend.dynx_key_now() == key else None


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
    prepare: Callable[[Any], None],
    **more: Any,
) -> Callable[[Any], Any]:
    """Make what compiles a function with a keyed backend, with entries and a limit apart from those of other backends.

    `prepare` is called with torch's context before it is used.
    """
    import torch

    capability("optimize").require()
    settings = {"nopython": fullgraph, "dynamic": dynamic, "guard_filter_fn": guard_filter_fn, **more}
    if has_regions():
        made: Any = torch._dynamo.optimize(backend, **settings, isolate_recompiles=True, recompile_limit=recompile_limit)
        prepare(made)
        return lambda fn: _in_region(made, backend, fn)
    made = torch._dynamo.optimize(backend, **settings)
    prepare(made)
    if recompile_limit is not None:
        limit = torch._dynamo.config._make_closure_patcher(recompile_limit=recompile_limit)
        made.enter_exit_hooks.append(limit)
        made.callback.dynx_recompile_limit = recompile_limit  # to be found again
    return lambda fn: made(_own_code(backend, fn))


def _in_region(made: Any, backend: Any, fn: Any) -> Any:
    """Compile in the region of the backend.

    All functions share one, but those whose code is torch's wrapper, which would share one limit.
    """
    whose = _owner(fn)
    regions = vars(backend).setdefault("dynx_regions", WeakKeyDictionary())
    made._isolate_recompiles_id = regions.setdefault(whose, made._isolate_recompiles_id)
    return made(fn)


def _owner(fn: Any) -> Any:
    """Give what entries are kept apart by besides the code: the class of a module or object whose code is torch's wrapper.

    All built-in modules and callable objects share that code; of one class, torch's own guards tell them apart.
    """
    if not _has_code_of_torch(fn):
        return _Everything
    inner = getattr(fn, "__wrapped__", fn)
    return inner if isinstance(inner, (FunctionType, type)) else type(inner)


class _Everything:
    """Owns what has code of its own."""


def _own_code(backend: Any, fn: Any) -> Any:
    """Copy a function, with code of its own for each backend, where torch keeps entries by code alone.

    A module is called through code that all modules share, and keeps it.
    """
    from torch._dynamo.external_utils import wrap_inline

    function = fn.__func__ if isinstance(fn, MethodType) else fn
    if is_module_call(fn) or not callable(fn):
        return fn
    if not isinstance(function, FunctionType):
        fn = function = wrap_inline(fn)
    codes = vars(backend).setdefault("dynx_codes", WeakKeyDictionary()).setdefault(_owner(fn), {})
    code = codes.setdefault(id(function.__code__), (function.__code__.replace(), function.__code__))[0]
    copy = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    functools.update_wrapper(copy, function)
    return MethodType(copy, fn.__self__) if isinstance(fn, MethodType) else copy


def copies_of(code: CodeType) -> list[CodeType]:
    """List the copies of a code object that were made to have entries of their own."""
    return [copy for copy, original in _copies() if original is code]


def original_of(code: CodeType) -> CodeType:
    """Give the code object that a copy was made of; others as they are."""
    return next((original for copy, original in _copies() if copy is code), code)


def _copies() -> Iterator[tuple[CodeType, CodeType]]:
    for backend in tuple(_keyed):
        for codes in vars(backend).get("dynx_codes", {}).values():
            yield from tuple(codes.values())


def original_module(compiled: Any) -> Any | None:
    """Give the module that was compiled, as a new one around it or in place; None for anything else."""
    from torch._dynamo.eval_frame import OptimizedModule

    if issubclass(type(compiled), OptimizedModule):
        return compiled._orig_mod
    own = getattr(type(compiled), "_compiled_call_impl", _code_of_module_calls) is None  # as modules have it
    return compiled if own and vars(compiled).get("_compiled_call_impl") is not None else None


def compiled_call(module: Any) -> Any:
    """Give the compiled function that the call of a compiled module leads to."""
    return vars(module).get("_compiled_call_impl") or vars(module).get("forward", module)


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

    return wrap_inline(innermost).__code__


def is_module_call(fn: Any) -> bool:
    """Tell whether calling it runs the hooks of a module, then its `forward`; torch does not compile the part before that."""
    from torch.nn import Module

    return isinstance(fn, MethodType) and fn.__func__.__code__ in (_code_of_module_calls(), Module._call_impl.__code__)


def _code_of_module_calls() -> CodeType:
    from torch.nn import Module

    return Module.__call__.__code__


def innermost(fn: Any) -> Any:
    """Give the function that a compiled one was made of; others, and those of methods, as they are."""
    from torch._dynamo.eval_frame import innermost_fn

    if isinstance(fn, MethodType):
        inner = innermost_fn(fn.__func__)
        return fn if inner is fn.__func__ else MethodType(inner, fn.__self__)
    return innermost_fn(fn)


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


def _has_code_of_torch(fn: Any) -> bool:
    from torch._dynamo.external_utils import wrap_inline

    return getattr(fn, "__code__", None) in (None, wrap_inline(innermost).__code__)
