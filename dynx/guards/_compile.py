"""`dynx.compile`: torch.compile with a cache of its own for each backend and configuration."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Hashable, Mapping
from typing import Any
from weakref import WeakValueDictionary

from dynx._torch import compiling, configs
from dynx._trace.cache_keys import CacheKey
from dynx.guards._keyed import Keyed, key_for, text_of
from dynx.guards._value import value_of

_FOR_TORCH = ("shapes_spec", "dynamic_shapes")  # what torch's context takes besides

_lock = threading.Lock()
_backends: WeakValueDictionary[Hashable, Any] = WeakValueDictionary()


def compile(
    fn: Any = None,
    *,
    backend: Any = "inductor",
    fullgraph: bool = False,
    dynamic: bool | None = None,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    disable: bool = False,
    key: Hashable = None,
    guard_config: bool = True,
    per_backend_limit: int | None = None,
    **torch_keywords: Any,
) -> Any:
    """Compile a function, module or class as `torch.compile` does, and never run what was compiled for something else.

    torch keeps what it compiled by function and backend object. Here it is kept by what the backend does (see `keyed`; `key`
    decides where given), by `fullgraph`, `dynamic`, `mode` and `options`, and by torch's configuration at the time of the call:
    of `torch._dynamo`, `torch._inductor` and `torch._functorch` what changes compiled code. A change compiles once, changing
    back finds what was there; parts behind graph breaks and frames called from there are kept apart too. Each of these has a
    limit of recompiles of its own, `per_backend_limit` or torch's. `guard_config=False` leaves the configuration out, which
    saves about a microsecond a call.

    Otherwise as torch.compile: also a decorator, with or without arguments; modules become an `OptimizedModule`; further
    keywords go to torch. Raises what torch.compile raises.

    >>> import torch, dynx
    >>> compiled = []
    >>> def backend(gm, inputs): compiled.append(gm); return gm.forward
    >>> f = dynx.compile(lambda x: x.sum(), backend=backend)
    >>> with torch._dynamo.config.patch(verbose=True): y = f(torch.ones(3))
    >>> y = f(torch.ones(3)); y = f(torch.ones(3)); len(compiled)
    1
    """
    if fn is None:
        given: dict[str, Any] = {
            "backend": backend,
            "fullgraph": fullgraph,
            "dynamic": dynamic,
            "mode": mode,
            "options": options,
            "disable": disable,
            "key": key,
            "guard_config": guard_config,
            "per_backend_limit": per_backend_limit,
        }
        return functools.partial(compile, **given, **torch_keywords)
    chosen = dict(options or {})  # torch takes what it knows out of the dict it is given
    named = {"mode": mode, "options": chosen or None, "dynamic": dynamic, "disable": disable, **torch_keywords}
    guard_filter_fn = chosen.get("guard_filter_fn")
    made = compiling.torch_backend(backend.backend if isinstance(backend, Keyed) else backend, **named)
    if made is None:
        return fn
    limit = per_backend_limit if per_backend_limit is not None else torch_keywords.get("recompile_limit")
    said = {"fullgraph": fullgraph, **named, "options": dict(options) if options else None, "recompile_limit": limit}
    alone = object() if torch_keywords.get("isolate_recompiles") else None
    value = key_for(backend, key), value_of(functools.partial(_settings, alone, **said)).key
    for_torch = {name: torch_keywords[name] for name in _FOR_TORCH if name in torch_keywords}

    def make(config: Hashable) -> Callable[[Any], Any]:
        with _lock:
            mine = _backends.get((value, config))
            if mine is None:
                settings = {**said, **(configs.values() if guard_config else {})}
                words = {"backend": text_of(backend), **{name: repr(each) for name, each in settings.items()}}
                mine = compiling.keyed_backend(made, CacheKey((value, config), words))
                _backends[value, config] = mine
        return compiling.compiler(
            mine, fullgraph=fullgraph, dynamic=dynamic, guard_filter_fn=guard_filter_fn, recompile_limit=limit, **for_torch
        )

    return _Dispatch(make, configs.fingerprint(of_config=guard_config))(fn)


def _settings(*_: Any, **__: Any) -> None: ...


class _Dispatch:
    """Stands where torch has its context: what it is called with is compiled once for each configuration."""

    def __init__(self, make: Callable[[Hashable], Callable[[Any], Any]], fingerprint: Callable[[], Hashable]) -> None:
        self._make, self._fingerprint = make, fingerprint

    def __call__(self, fn: Any) -> Any:
        if compiling.is_module(fn):
            return compiling.optimized_module(fn, self)
        if inspect.isclass(fn):
            return compiling.compile_class(fn, self)
        fn = compiling.innermost(fn)
        fingerprint = self._fingerprint
        now = fingerprint()
        first = self._make(now)(fn)  # at once: what cannot be compiled is told here, as torch does
        table = {now: first}
        compiled_for = table.get

        @functools.wraps(fn)
        def compiled(*args: Any, **kwargs: Any) -> Any:
            run = compiled_for(now := fingerprint())
            if run is None:
                run = table.setdefault(now, self._make(now)(fn))
            return run(*args, **kwargs)

        compiling.pass_for_compiled(compiled, fn, first)
        return compiled
