"""Keep one shared object for each key, as long as other code keeps that object alive."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar
from weakref import ref

T = TypeVar("T")


class Interned(Generic[T]):
    """A table of weak references to shared objects, found by key. It stores no keys, since a key may keep its object alive."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._refs: dict[int, list[ref[T]]] = {}  # by the hash of the key

    def get(self, key: Hashable, key_of: Callable[[T], Hashable], create: Callable[[], T]) -> T:
        """Return the living object for which `key_of(object)` equals the key; create one if there is none."""
        with self._lock:
            alive = [weak for weak in self._refs.get(hash(key), ()) if weak() is not None]
            for weak in alive:
                existing = weak()
                if existing is not None and key_of(existing) == key:
                    return existing
            created = create()
            self._refs[hash(key)] = [*alive, ref(created)]
            return created
