"""`dynx.compile`: torch.compile with a cache of its own for each backend and configuration."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from dynx._torch.compilation import backend_key, isolation, wrappers
from dynx._torch.compilation.config import config_fingerprint, config_values, forced_backend
from dynx._torch.compilation.recompile_limit import tell_at_limit
from dynx._torch.compilation.unwrap import unwrap
from dynx._torch.tracing.render import show_value
from dynx._trace.cache_keys import CacheKey
from dynx._trace.safe_read import is_module
from dynx.guards._compile.backend_value import value_of
from dynx.guards._compile.interned import Interned
from dynx.guards._compile.keyed_backend import Keyed, key_for, text_of
from dynx.guards._compile.warnings import warn_at_limit, warn_if_forced

_FOR_TORCH = ("shapes_spec", "dynamic_shapes")  # what torch's context takes besides

_backends = Interned()


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
    >>> f = dynx.compile(lambda x: x + 1, backend=backend)
    >>> for scalars in (False, True, False, True):
    ...     with torch._dynamo.config.patch(capture_scalar_outputs=scalars): y = f(torch.ones(3))
    >>> len(compiled)
    2
    """
    given = _Given(backend, fullgraph, dynamic, mode, options, disable, key, guard_config, per_backend_limit, torch_keywords)
    if fn is None and "model" in torch_keywords:  # as torch names it
        fn = torch_keywords.pop("model")
    dispatch = _Dispatch(given)
    return dispatch if fn is None else dispatch(fn)


@dataclass(frozen=True)
class _Given:
    """The arguments of `compile`."""

    backend: Any
    fullgraph: bool
    dynamic: bool | None
    mode: str | None
    options: Mapping[str, Any] | None
    disable: bool
    key: Hashable
    guard_config: bool
    per_backend_limit: int | None
    torch_keywords: dict[str, Any]


class _Dispatch:
    """Stands where torch has its context: what it is called with is compiled once for each configuration."""

    def __init__(self, given: _Given) -> None:
        self._given = given
        keywords, chosen = given.torch_keywords, dict(given.options or {})  # torch takes what it knows out of its dict
        self._guard_filter_fn = chosen.get("guard_filter_fn")
        backend = given.backend.backend if isinstance(given.backend, Keyed) else given.backend
        named = {"mode": given.mode, "options": chosen or None, "dynamic": given.dynamic, "disable": given.disable, **keywords}
        self._made = backend_key.torch_backend(backend, **named)
        self._limit = given.per_backend_limit if given.per_backend_limit is not None else keywords.get("recompile_limit")
        told = {"options": dict(given.options) if given.options else None, "recompile_limit": self._limit}
        self._said = {"fullgraph": given.fullgraph, **named, **told}
        self._alone = object() if keywords.get("isolate_recompiles") else None
        self._fingerprint = config_fingerprint(of_config=given.guard_config)

    def __reduce__(self) -> tuple[Any, ...]:
        return _Dispatch, (self._given,)

    def __call__(self, fn: Any) -> Any:
        if self._made is None:
            return fn
        if isinstance(fn, staticmethod):
            return staticmethod(self(fn.__func__))
        fn = unwrap(fn).original
        if is_module(fn):
            self.compiler()(fn)  # raises what torch raises for a module it does not take
            return wrappers.optimized_module(fn, self)
        if inspect.isclass(fn):
            return wrappers.compile_class(fn, self)
        fingerprint = self._fingerprint
        now = fingerprint()
        first = self.compiler(now)(fn)  # at once: what cannot be compiled is told here, as torch does
        backend = self._given.backend
        table = {now: first} if forced_backend() is None else {}
        compiled_for = table.get

        @functools.wraps(fn)
        def compiled(*args: Any, **kwargs: Any) -> Any:
            run = compiled_for(now := fingerprint())
            if run is None:
                warn_if_forced(fn, backend)
                run = table.setdefault(now, self.compiler(now)(fn))
            return run(*args, **kwargs)

        wrappers.pass_for_compiled(compiled, fn, first)
        compiled.dynx_now = lambda: compiled_for(fingerprint()) or self.compiler(fingerprint())(fn)  # type: ignore[attr-defined]
        return compiled

    def _value(self) -> Hashable:
        settings = value_of(partial(_settings, self._alone, **self._said)).key
        return key_for(self._given.backend, self._given.key), settings

    def compiler(self, config: Hashable = None) -> Callable[[Any], Any]:
        """Make what compiles for a configuration, or that of now: with the backend of others of the same key, if any."""
        key = self._value(), config or self._fingerprint()
        mine = _backends.get(key, backend_key.shared_key, lambda: self._keyed(key))
        keywords = self._given.torch_keywords
        return isolation.compiler(
            mine,
            fullgraph=self._given.fullgraph,
            dynamic=self._given.dynamic,
            guard_filter_fn=self._guard_filter_fn,
            recompile_limit=self._limit,
            prepare=partial(tell_at_limit, tell=partial(warn_at_limit, mine.dynx_key)),
            **{name: keywords[name] for name in _FOR_TORCH if name in keywords},
        )

    def _keyed(self, key: tuple[Hashable, Hashable]) -> Any:
        settings = {**self._said, **(config_values() if self._given.guard_config else {})}
        words = {"backend": text_of(self._given.backend), **{name: show_value(each) for name, each in settings.items()}}
        return backend_key.keyed_backend(self._made, CacheKey(key, words), lambda: (self._value(), key[1]))


def _settings(*_: Any, **__: Any) -> None: ...
