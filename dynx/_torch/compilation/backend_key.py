"""Compile with a backend that is what it was keyed by, and with a cache of its own.

Torch matches a cache entry when its backend is the same object, or of the same type and equal. Entries are kept apart by
region (`isolate_recompiles`, from 2.13 on): a compiled function looks only at its own and at those without a region.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cache
from typing import Any
from weakref import WeakSet

from dynx._torch.capabilities import require


def torch_backend(backend: Any, **named: Any) -> Any:
    """Make what `torch.compile` makes of its arguments: the object that is called with each graph; None where it does nothing.

    Raises what it raises. Torch: the backend stands at the end of `_torchdynamo_orig_backend` of the callback that a compiled
    function closes over.
    """
    require("cached_backends", "innermost_backend")
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
    live_backends.add(copy)
    return copy


live_backends: WeakSet[Any] = WeakSet()  # backends that live


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
