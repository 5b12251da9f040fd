"""Backends that torch can tell apart, and put together, by what they do."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

from dynx._torch.tracing.render import show_value
from dynx._trace.user_location import levels_to_the_user
from dynx.errors import DynxWarning
from dynx.guards._compile.backend_value import Value, value_of
from dynx.guards._compile.interned import Interned

_CHOSEN = ("chosen",)  # begins keys that the user gave

_lock = threading.Lock()
_known = Interned()
_met: dict[int, int] = {}  # of backends that look alike, the hash of the key of the first
_told: set[int] = set()


class Keyed:
    """A backend for `torch.compile`; there is one object for each key."""

    def __init__(self, backend: Any, key: Hashable) -> None:
        self.backend, self.key = backend, key
        self._is_shared = True
        self.__name__ = getattr(backend, "__name__", None) or type(backend).__name__
        if hasattr(backend, "reset"):
            self.reset = backend.reset

    def __call__(self, graph_module: Any, example_inputs: Any, **options: Any) -> Callable[..., Any]:
        self._is_shared = self.shared_key() is not None
        compiled: Callable[..., Any] = self.backend(graph_module, example_inputs, **options)
        return compiled

    def shared_key(self) -> Hashable | None:
        """Give the key, None once the backend was another, when it compiled or now."""
        is_chosen = self.key[:1] == _CHOSEN if isinstance(self.key, tuple) else False
        return self.key if self._is_shared and (is_chosen or value_of(self.backend).key == self.key) else None

    def __repr__(self) -> str:
        return f"<keyed backend {self.__name__}>"


def keyed(backend: Any, *, key: Hashable = None) -> Any:
    """Make a backend that torch takes for the same whenever it would compile alike.

    `torch.compile` compares backends by identity: a lambda or a partial made anew compiles everything again, and counts against
    the limit. Of two backends with equal code, defaults, closure and globals, or options, this gives the same object. What
    could change unseen, such as a list that a function closes over, is compared by identity, and a warning says so the first
    time that it makes a difference; `key`, any hashable value, decides instead. A name is given back as it is. Takes a
    callable `(GraphModule, list of example inputs) -> callable` or a name; raises TypeError for anything else.

    >>> import torch, dynx
    >>> from functools import partial
    >>> def backend(gm, inputs, level): return gm.forward
    >>> dynx.guards.keyed(partial(backend, level=1)) is dynx.guards.keyed(partial(backend, level=1))
    True
    """
    if isinstance(backend, (str, Keyed)):
        return backend
    if not callable(backend):
        raise TypeError(f"a backend is a name or a function of a graph module and example inputs, not {backend!r}")
    found = key_for(backend, key)
    return _known.get(found, Keyed.shared_key, lambda: Keyed(backend, found))


def key_for(backend: Any, key: Hashable = None) -> Hashable:
    """Give the key of a backend; warns once if a part that is compared by identity sets it apart from one of the same code."""
    if isinstance(backend, Keyed):
        return backend.key
    if key is not None:
        return (*_CHOSEN, key)
    value = value_of(backend)
    _tell_apart(backend, value)
    return value.key


def _tell_apart(backend: Any, value: Value) -> None:
    if not value.by_identity:
        return
    likeness, key = hash(value.likeness), hash(value.key)
    with _lock:
        if _met.setdefault(likeness, key) == key or likeness in _told:
            return
        _told.add(likeness)
    name = getattr(backend, "__qualname__", type(backend).__qualname__)
    warnings.warn(
        f"backend {name!r} looks like one of before, but {value.by_identity[0]} can change:"
        " it is compared by identity, so everything is compiled again\n"
        "  reuse one backend object, or say what makes it the same: dynx.compile(..., key=...)",
        DynxWarning,
        stacklevel=levels_to_the_user(),
    )


def text_of(backend: Any) -> str:
    """Write a backend as a user would: `eager`, `partial(backend, level=1)`, `backend`."""
    if isinstance(backend, Keyed):
        return text_of(backend.backend)
    if isinstance(backend, partial):
        given = [*map(show_value, backend.args), *(f"{name}={show_value(each)}" for name, each in backend.keywords.items())]
        return f"partial({', '.join([text_of(backend.func), *given])})"
    return backend if isinstance(backend, str) else str(getattr(backend, "__qualname__", type(backend).__qualname__))
