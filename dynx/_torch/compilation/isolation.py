"""Compile a function so that its cache entries and recompile limit are kept apart from those of other backends.

Torch: regions of cache entries (`isolate_recompiles`, from 2.13 on): a compiled function looks only at its own entries and at
those without a region. Torch 2.11 has no regions: there each backend gets a copy of the function's code object.
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

    require("optimize", "optimize_context", "innermost_fn", "wrap_inline")
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
    if not has_code_of_torch(fn):
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
    for backend in tuple(live_backends):
        for codes in vars(backend).get("dynx_codes", {}).values():
            yield from tuple(codes.values())
