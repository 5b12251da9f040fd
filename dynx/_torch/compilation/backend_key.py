"""Keyed backends: copies of torch's backends, each equal only to itself, so that torch shares no cache entry between them.

Each keyed backend has a cache key, which stands for the settings for which the copy was made; `key.value` is hashable.

Torch reuses a cache entry when its backend is the same object, or of the same type and equal. From 2.13 on entries also belong
to a region (`isolate_recompiles`): a compiled function looks up only entries of its own region and entries without a region.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cache
from typing import Any
from weakref import WeakSet

from dynx._torch.capabilities import require
from dynx._torch.compilation.wrappers import cells_of


def torch_backend(backend: Any, **options: Any) -> Any:
    """Return the backend object that `torch.compile` creates from these arguments; None if it is disabled or an export runs.

    Raises what `torch.compile` raises. Torch: a compiled function closes over a callback, whose innermost
    `_torchdynamo_orig_backend` is the backend.
    """
    require("cached_backends", "innermost_backend")
    import torch
    from torch._dynamo.eval_frame import cached_backends, innermost_backend

    def nothing() -> None: ...

    cached_before = set(cached_backends)
    compiled: Any = torch.compile(nothing, backend=backend, **options)
    if compiled is nothing:  # torch.compile is disabled, or an export is running
        return None
    inner = innermost_backend(cells_of(compiled)["callback"].cell_contents)
    if id(inner) not in cached_before:
        cached_backends.pop(id(inner), None)  # torch._dynamo.reset() is to reset only the keyed copies of it
    return inner


def options_of(backend: Any) -> dict[str, Any]:
    """Return the settings that `mode` and `options` of `torch.compile` result in, as stored in torch's backend object.

    Torch: settings of inductor, in `_TorchCompileInductorWrapper.config`; keywords of any other backend, in
    `_TorchCompileWrapper.kwargs`. Torch's `==` of backends compares the same attributes.
    """
    attributes = {} if backend is None else vars(backend)
    return dict(attributes["config"] if "config" in attributes else attributes.get("kwargs", {}))


def may_use_inductor(backend: Any) -> bool:
    """Return whether a backend object of torch may read inductor's settings: all except `eager` and `eager_noexcept`.

    Torch: `_TorchCompileWrapper.compiler_fn`, the registered function. `aot_eager` reads settings of inductor too.
    """
    from torch._dynamo.backends.debugging import eager, eager_noexcept

    function = getattr(backend, "compiler_fn", None)
    return not any(function is of_torch for of_torch in (eager, eager_noexcept))


def keyed_backend(backend: Any, key: Any, key_now: Callable[[], Hashable]) -> Any:
    """Copy a backend that `torch_backend` returned; the copy has this cache key and is equal only to itself.

    `key_now()` returns the key's value for the current settings. If it differs from `key.value` when the copy compiles a graph,
    `shared_key` returns None from then on, so that no other function uses the copy.
    """
    cls: Any = type(backend)
    copy = object.__new__(_keyed_class(cls))
    vars(copy).update(vars(backend), dynx_key=key, dynx_key_now=key_now, dynx_is_shared=True)
    live_backends.add(copy)
    return copy


live_backends: WeakSet[Any] = WeakSet()  # keyed backends that are alive


@cache  # for the few classes of backends that torch has
def _keyed_class(cls: Any) -> Any:
    def compile_graph(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.dynx_is_shared = self.dynx_is_shared and self.dynx_key_now() == self.dynx_key.value
        return cls.__call__(self, *args, **kwargs)

    def is_same(self: Any, other: Any) -> bool:  # torch's `__eq__` is true for backends with equal arguments
        return self is other

    methods = {"__eq__": is_same, "__hash__": object.__hash__, "__module__": cls.__module__, "__doc__": cls.__doc__}
    return type(cls.__name__, (cls,), {**methods, "__call__": compile_graph})


def shared_key(backend: Any) -> Hashable | None:
    """Return the value of a keyed backend's cache key; None if the backend must not be shared, since settings have changed."""
    key = backend.dynx_key.value
    return key if backend.dynx_is_shared and backend.dynx_key_now() == key else None


def key_of(backend: Any) -> Any:
    """Return the cache key that `keyed_backend` gave a backend, even if torch wrapped it; None for any other backend."""
    from torch._dynamo.eval_frame import innermost_backend

    return getattr(innermost_backend(backend), "dynx_key", None)
