"""Compile a function with cache entries and a recompile limit separate from those of other backends.

Torch: regions of cache entries (`isolate_recompiles`, from 2.13 on): a compiled function looks up only entries of its own
region and entries without a region. For torch 2.11, which has no regions, each backend gets a copy of the function's code
object.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, MethodType
from typing import Any
from weakref import WeakKeyDictionary

from dynx._torch.capabilities import require
from dynx._torch.compilation.backend_key import live_backends
from dynx._torch.compilation.wrappers import has_code_of_torch, is_module_call


def has_regions() -> bool:
    """Return whether the installed torch has regions of cache entries (`isolate_recompiles`)."""
    import torch._dynamo.eval_frame

    return "isolate_recompiles" in inspect.signature(torch._dynamo.eval_frame._optimize).parameters


def compiler(
    backend: Any,
    *,
    fullgraph: bool,
    recompile_limit: int | None = None,
    prepare: Callable[[Any], None] = lambda context: None,
    in_place: bool = False,
    **options: Any,
) -> Callable[[Any], Any]:
    """Return a function that compiles its argument with a backend whose cache entries no other backend shares.

    `backend` is a keyed backend (see `backend_key`). `options` are those of `torch._dynamo.optimize`. `prepare` is called
    with torch's `_TorchDynamoContext` before the context compiles anything. With `in_place`, if torch has no regions, the
    function's code object is compiled instead of a copy: the caller must have copied it.
    """
    import torch

    require("optimize", "optimize_context", "innermost_fn", "wrap_inline")
    region = {"isolate_recompiles": True, "recompile_limit": recompile_limit} if has_regions() else {}
    context = torch._dynamo.optimize(backend, nopython=fullgraph, **options, **region)
    prepare(context)
    if region:
        return lambda fn: _in_region(context, backend, fn)
    if recompile_limit is not None:
        limit = torch._dynamo.config._make_closure_patcher(recompile_limit=recompile_limit)
        context.enter_exit_hooks.append(limit)
        context.callback.dynx_recompile_limit = recompile_limit  # read by lookup.py
    return lambda fn: context(fn if in_place and isinstance(fn, (FunctionType, MethodType)) else _own_code(backend, fn))


def _in_region(context: Any, backend: Any, fn: Any) -> Any:
    """Compile a function in the region of cache entries that belongs to this backend.

    All functions of a backend share one region. Callables without a code object get a region for each class: torch runs all of
    them through the code object of `wrap_inline`, so that in one region they would count towards one recompile limit.
    """
    owner = _owner(fn)
    regions = vars(backend).setdefault("dynx_regions", WeakKeyDictionary())
    context._isolate_recompiles_id = regions.setdefault(owner, context._isolate_recompiles_id)
    return context(fn)


def _owner(fn: Any) -> Any:
    """Return a key that separates cache entries of a callable from entries of other callables that run the same code object.

    For a function with a code object of its own, the key is `_OwnCode`. For a built-in module or a callable object, which torch
    runs through one wrapper, the key is its class; guards distinguish objects of the same class.
    """
    if not has_code_of_torch(fn):
        return _OwnCode
    inner = getattr(fn, "__wrapped__", fn)
    return inner if isinstance(inner, (FunctionType, type)) else type(inner)


class _OwnCode:
    """The key that `_owner` returns for every function that has a code object of its own."""


def _own_code(backend: Any, fn: Any) -> Any:
    """Copy a function with a new code object for this backend, for torch without regions of cache entries.

    The bound `__call__` of a module is returned unchanged: all modules share its code.
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
    """Return the copies that dynx made of a code object, each with the cache entries of one backend."""
    return [copy for copy, original in _copies() if original is code]


def original_of(code: CodeType) -> CodeType:
    """Return the code object from which dynx copied this one; the same code object if it is not a copy."""
    return next((original for copy, original in _copies() if copy is code), code)


def _copies() -> Iterator[tuple[CodeType, CodeType]]:
    for backend in tuple(live_backends):
        for codes in vars(backend).get("dynx_codes", {}).values():
            yield from tuple(codes.values())
