"""One object for each key, as long as something else keeps the object alive."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar
from weakref import ref

T = TypeVar("T")


class Interned(Generic[T]):
    """Finds objects by key. Keeps neither alive: a key may refer back to its object."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._refs: dict[int, list[ref[T]]] = {}  # by the hash of the key

    def get(self, key: Hashable, key_of: Callable[[T], Hashable], create: Callable[[], T]) -> T:
        """Return the object whose `key_of` equals the key; create it if there is none."""
        with self._lock:
            alive = [weak for weak in self._refs.get(hash(key), ()) if weak() is not None]
            for weak in alive:
                existing = weak()
                if existing is not None and key_of(existing) == key:
                    return existing
            created = create()
            self._refs[hash(key)] = [*alive, ref(created)]
            return created
