"""`dynx.compile`: torch.compile with separate cache entries for each backend and configuration."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, ParamSpec, TypeVar, overload

from dynx._bytecode.safe_read import is_module
from dynx._torch.compilation import backend_key, isolation, wrappers
from dynx._torch.compilation.config import config_fingerprint, config_values, forced_backend, without_inductor
from dynx._torch.compilation.recompile_limit import report_at_limit
from dynx._torch.compilation.unwrap import unwrap
from dynx._torch.tracing.render import show_value
from dynx._trace.cache_keys import CacheKey
from dynx.errors import UsageError
from dynx.guards._compile.backend_value import options_key, value_of
from dynx.guards._compile.interned import Interned
from dynx.guards._compile.keyed_backend import Keyed, check_key, key_for, text_of
from dynx.guards._compile.reaches_inductor import reaches_inductor
from dynx.guards._compile.warnings import warn_at_limit, warn_if_forced

P = ParamSpec("P")
R = TypeVar("R")

_CONTEXT_KEYWORDS = ("shapes_spec", "dynamic_shapes")  # keywords of torch.compile that it passes on to its context

_backends: Interned[Any] = Interned()  # copies of torch's own backend objects, which are not typed


@overload
def compile(
    fn: Callable[P, R],
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
) -> Callable[P, R]: ...
@overload
def compile(
    fn: None = None,
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
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
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
    """Compile as `torch.compile` does, but never run code compiled for another backend, option or configuration.

    torch.compile reuses compiled code for the same function and backend object. dynx.compile compares what the backend does
    (see `guards.keyed`), `fullgraph`, `dynamic`, `mode`, `options`, and at each call the settings of `torch._dynamo`,
    `torch._inductor` and `torch._functorch` that change compiled code; settings of inductor are ignored for `backend="eager"`
    and for backends that cannot call inductor. A changed setting compiles once; changing it back reuses the earlier code. The
    same holds for resume functions and their callees. Recompile limits apply per combination of backend, options and settings.

    Args:
        fn: The function, method, module or class; without it, a decorator is returned.
        backend: As in torch.compile.
        fullgraph: As in torch.compile.
        dynamic: As in torch.compile.
        mode: As in torch.compile.
        options: As in torch.compile.
        disable: As in torch.compile.
        key: A hashable value that identifies the backend, if its state cannot be compared. Default: computed from the backend.
        guard_config: If False, ignore changes of the configuration, which saves about a microsecond per call.
        per_backend_limit: Recompile limit of each combination, at least 1. Default: `torch._dynamo.config.recompile_limit`.
        **torch_keywords: Further keywords of torch.compile.

    Returns:
        What torch.compile returns: a function, an `OptimizedModule`, or the class.

    Raises:
        UsageError: `key` is not hashable or `per_backend_limit` is not a positive int.
        Exception: any exception that torch.compile raises.

    Example:
        >>> import torch, dynx
        >>> compiled = []
        >>> def backend(gm, inputs): compiled.append(gm); return gm.forward
        >>> f = dynx.compile(lambda x: x + 1, backend=backend)
        >>> for scalars in (False, True, False, True):
        ...     with torch._dynamo.config.patch(capture_scalar_outputs=scalars): y = f(torch.ones(3))
        >>> len(compiled)
        2
    """
    check_key(key)
    if per_backend_limit is not None and (type(per_backend_limit) is not int or per_backend_limit < 1):
        raise UsageError(
            f"per_backend_limit={per_backend_limit!r} is not a positive int\n"
            "  pass how often torch may compile the function for each backend and configuration"
        )
    arguments = _Arguments(
        backend, fullgraph, dynamic, mode, options, disable, key, guard_config, per_backend_limit, torch_keywords
    )
    if fn is None and "model" in torch_keywords:  # the name in torch.compile
        fn = torch_keywords.pop("model")
    context = _Context(arguments)
    return context if fn is None else context(fn)


@dataclass(frozen=True)
class _Arguments:
    """The arguments of one call of `dynx.compile`."""

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


class _CompileKey(NamedTuple):
    """Backend, arguments and torch configuration of a compilation: its code is reused only if all of them are equal."""

    arguments: Hashable  # the backend's key, and the value of the other arguments
    config: Hashable  # fingerprint of torch's configuration


class _Context:
    """The counterpart of torch's `OptimizeContext`: compiles a callable for each torch configuration in which it is called."""

    def __init__(self, arguments: _Arguments) -> None:
        self._arguments = arguments
        keywords, options = arguments.torch_keywords, dict(arguments.options or {})  # torch removes options from its dict
        self._guard_filter_fn = options.get("guard_filter_fn")
        backend = arguments.backend.backend if isinstance(arguments.backend, Keyed) else arguments.backend
        named = {"mode": arguments.mode, "options": options or None, "dynamic": arguments.dynamic, "disable": arguments.disable}
        named |= keywords
        self._torch_backend = backend_key.torch_backend(backend, **named)
        self._function = backend
        limit = arguments.per_backend_limit
        self._limit = limit if limit is not None else keywords.get("recompile_limit")
        as_passed = {"options": dict(arguments.options) if arguments.options else None, "recompile_limit": self._limit}
        self._settings = {"fullgraph": arguments.fullgraph, **named, **as_passed}
        self._isolation = object() if keywords.get("isolate_recompiles") else None  # unique, so that no entries are shared
        self._fingerprint = config_fingerprint(of_config=arguments.guard_config)

    def __reduce__(self) -> tuple[Any, ...]:
        return _Context, (self._arguments,)

    def __call__(self, fn: Any) -> Any:
        if self._torch_backend is None:
            return fn
        if isinstance(fn, staticmethod):
            return staticmethod(self(fn.__func__))
        fn = unwrap(fn).original
        if is_module(fn):
            self.compiler()(fn)  # raises torch's error if torch rejects the module
            return wrappers.optimized_module(fn, self)
        if inspect.isclass(fn):
            return wrappers.compile_class(fn, self)
        fingerprint = self._fingerprint
        config = fingerprint()
        first = self.compiler(config)(fn)  # now, so that errors about `fn` are raised here, as torch does
        backend = self._arguments.backend
        table = {config: first} if forced_backend() is None else {}
        compiled_for = table.get

        @functools.wraps(fn)
        def compiled(*args: Any, **kwargs: Any) -> Any:
            run = compiled_for(config := fingerprint())
            if run is None:
                warn_if_forced(fn, backend)
                run = table.setdefault(config, self.compiler(config)(fn))
            return run(*args, **kwargs)

        wrappers.pass_for_compiled(compiled, fn, first)
        compiled.dynx_now = lambda: compiled_for(fingerprint()) or self.compiler(fingerprint())(fn)  # type: ignore[attr-defined]
        return compiled

    def _value(self) -> Hashable:
        # `mode` and `options` as torch applies them: two ways to write the same settings are equal
        settings = {name: value for name, value in self._settings.items() if name not in ("mode", "options")}
        options = options_key({**backend_key.options_of(self._torch_backend), "guard_filter_fn": self._guard_filter_fn})
        value = value_of(partial(_no_operation, self._isolation, **settings)).key
        return key_for(self._arguments.backend, self._arguments.key), value, options

    def _may_use_inductor(self) -> bool:
        return backend_key.may_use_inductor(self._torch_backend) and reaches_inductor(self._function)

    def backend(self, config: tuple[Any, ...] | None = None) -> Any:
        """Return torch's backend object for one torch configuration, by default the current one.

        Compilations with equal keys (`_CompileKey`) share this object, and therefore share cache entries.
        """
        config = config or self._fingerprint()
        if self._arguments.guard_config and not self._may_use_inductor():
            config = without_inductor(config)
        key = _CompileKey(self._value(), config)
        return _backends.get(key, backend_key.shared_key, lambda: self._keyed_backend(key))

    def compiler(self, config: tuple[Any, ...] | None = None) -> Callable[[Any], Any]:
        """Return a decorator that compiles a function for one torch configuration, by default the current one."""
        backend = self.backend(config)
        keywords = self._arguments.torch_keywords
        return isolation.compiler(
            backend,
            fullgraph=self._arguments.fullgraph,
            dynamic=self._arguments.dynamic,
            guard_filter_fn=self._guard_filter_fn,
            recompile_limit=self._limit,
            prepare=partial(report_at_limit, report=partial(warn_at_limit, backend.dynx_key)),
            **{name: keywords[name] for name in _CONTEXT_KEYWORDS if name in keywords},
        )

    def _keyed_backend(self, key: _CompileKey) -> Any:
        values = config_values(of_inductor=self._may_use_inductor()) if self._arguments.guard_config else {}
        settings = {**self._settings, **values, "key": self._arguments.key}
        texts = {"backend": text_of(self._arguments.backend), **{name: show_value(value) for name, value in settings.items()}}
        cache_key = CacheKey(key, texts, self._isolation)
        return backend_key.keyed_backend(self._torch_backend, cache_key, lambda: _CompileKey(self._value(), key.config))


def _no_operation(*_: Any, **__: Any) -> None: ...
