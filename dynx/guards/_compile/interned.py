"""One object for each key, as long as somebody else holds it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any
from weakref import ref


class Interned:
    """Finds objects by key. Holds neither: a key may lead back to its object."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[int, list[ref[Any]]] = {}  # by the hash of the key

    def get(self, key: Hashable, key_of: Callable[[Any], Hashable], make: Callable[[], Any]) -> Any:
        """Give the object whose `key_of` is the key, or make one."""
        with self._lock:
            alive = [each for each in self._found.get(hash(key), ()) if each() is not None]
            for each in alive:
                found = each()
                if found is not None and key_of(found) == key:
                    return found
            made = make()
            self._found[hash(key)] = [*alive, ref(made)]
            return made
