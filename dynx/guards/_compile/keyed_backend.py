"""`guards.keyed`: one backend object for all backends that compile in the same way, so that they share cache entries."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, NamedTuple

from dynx._reading.user_location import user_stacklevel
from dynx._torch.tracing.render import show_value
from dynx.errors import DynxWarning, UsageError
from dynx.guards._compile.backend_value import Value, value_of
from dynx.guards._compile.interned import Interned


class ChosenKey(NamedTuple):
    """A backend key that the user passed as `key=`; dynx does not check it against the backend."""

    key: Hashable


class Keyed:
    """A wrapper of a backend for `torch.compile`; backends with equal keys share one wrapper object."""

    def __init__(self, backend: Any, key: Hashable) -> None:
        self.backend, self.key = backend, key
        self._is_shared = True
        self.__name__ = getattr(backend, "__name__", None) or type(backend).__name__
        if hasattr(backend, "reset"):
            self.reset = backend.reset

    def __call__(self, graph_module: Any, example_inputs: Any, **options: Any) -> Callable[..., Any]:
        self._is_shared = self.shared_key() is not None
        return self.backend(graph_module, example_inputs, **options)

    def shared_key(self) -> Hashable | None:
        """Return the key under which this object is shared; None if the backend has changed since the key was computed."""
        is_unchanged = type(self.key) is ChosenKey or value_of(self.backend).key == self.key
        return self.key if self._is_shared and is_unchanged else None

    def __repr__(self) -> str:
        return f"<keyed backend {self.__name__}>"


_lock = threading.Lock()
_keyed: Interned[Keyed] = Interned()
_first_keys: dict[int, int] = {}  # by hash of `Value.likeness`: hash of the key of the first backend with this likeness
_warned: set[int] = set()  # hashes of likenesses


def keyed(backend: Any, *, key: Hashable = None) -> Any:
    """Return one backend object for all backends that compile in the same way, so that they share cache entries.

    `torch.compile` compares backends by identity: a lambda or partial that is created again compiles everything again, and
    counts towards the recompile limit. `keyed` returns one object for backends with equal code, defaults, closure, globals and
    options. A part that can change later, such as a list in a closure, is compared by identity; dynx warns the first time
    that such a part makes two backends with the same code unequal.

    Args:
        backend: A name, which is returned unchanged, or a callable `(GraphModule, list of example inputs) -> callable`.
        key: A hashable value; backends with equal keys count as equal. Default: computed from the backend.

    Raises:
        UsageError: `backend` is neither a name nor callable, or `key` is not hashable.

    Example:
        >>> import torch, dynx
        >>> from functools import partial
        >>> def backend(gm, inputs, level): return gm.forward
        >>> dynx.guards.keyed(partial(backend, level=1)) is dynx.guards.keyed(partial(backend, level=1))
        True
    """
    check_key(key)
    if isinstance(backend, (str, Keyed)):
        return backend
    if not callable(backend):
        raise UsageError(
            f"{show_value(backend)} is not a backend\n  pass a name, or a callable that takes a GraphModule and example inputs"
        )
    backend_key = key_for(backend, key)
    return _keyed.get(backend_key, Keyed.shared_key, lambda: Keyed(backend, backend_key))


def check_key(key: Any) -> None:
    """Raise UsageError unless a key that the user passed is hashable."""
    try:
        hash(key)
    except TypeError:
        raise UsageError(
            f"key={show_value(key)} is not hashable: a {type(key).__qualname__}\n  pass a string, a number or a tuple of them"
        ) from None


def key_for(backend: Any, key: Hashable = None) -> Hashable:
    """Return the key by which backends are compared: the user's `key`, or else a key computed from the backend.

    Warns once if an earlier backend has the same code but another key: then these backends differ in an object that is compared
    by identity, such as a list in the closure.
    """
    if isinstance(backend, Keyed):
        return backend.key
    if key is not None:
        return ChosenKey(key)
    value = value_of(backend)
    _warn_if_separated(backend, value)
    return value.key


def _warn_if_separated(backend: Any, value: Value) -> None:
    if not value.by_identity:
        return
    likeness, key = hash(value.likeness), hash(value.key)
    with _lock:
        if _first_keys.setdefault(likeness, key) == key or likeness in _warned:
            return
        _warned.add(likeness)
    name = getattr(backend, "__qualname__", type(backend).__qualname__)
    warnings.warn(
        f"backend {name!r} has the same code as an earlier backend, but torch compiles again for it:"
        f" {value.by_identity[0]} can change, so it is compared by identity\n"
        "  reuse one backend object, or pass the same key for equal backends: dynx.compile(..., key=...)",
        DynxWarning,
        stacklevel=user_stacklevel(),
    )


def text_of(backend: Any) -> str:
    """Return a backend as text, as in the user's code: `eager`, `partial(backend, level=1)`, `backend`."""
    if isinstance(backend, Keyed):
        return text_of(backend.backend)
    if isinstance(backend, partial):
        keywords = (f"{name}={show_value(value)}" for name, value in backend.keywords.items())
        return f"partial({', '.join([text_of(backend.func), *map(show_value, backend.args), *keywords])})"
    return backend if isinstance(backend, str) else str(getattr(backend, "__qualname__", type(backend).__qualname__))
