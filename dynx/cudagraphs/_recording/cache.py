"""The recordings of one graph, and what happens when there are too many."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from weakref import WeakMethod, WeakSet

from dynx.cudagraphs._config import Config
from dynx.cudagraphs._notices import tell
from dynx.cudagraphs._recording.recording import Recording
from dynx.cudagraphs._stats import count_skip
from dynx.errors import CaptureError
from dynx.records.cudagraphs import Skip

Key = tuple[Any, ...]

_all: WeakSet[Recordings] = WeakSet()


def close_all() -> None:
    """Give back what all recordings hold; graphs that are called again record anew."""
    for each in tuple(_all):
        each.close()


class Recordings:
    """Recordings by what they are made for: numbers, addresses, layouts."""

    def __init__(self, config: Config, what: str, names: Sequence[str], on_close: Callable[[], None]) -> None:
        self._config = config
        self._what = what  # is recorded, as messages call it
        self._names = names  # of the parts of a key
        self._by_key: OrderedDict[Key, list[Recording]] = OrderedDict()  # used last stands last
        self._on_close = WeakMethod(on_close)  # of the owner, which is to go when nobody else holds it
        self._is_told = False
        _all.add(self)

    def find(self, key: Key, fits: Callable[[Recording], bool]) -> Recording | None:
        """Find a recording that fits."""
        if key in self._by_key:
            self._by_key.move_to_end(key)
        return next((each for each in self._by_key.get(key, ()) if fits(each)), None)

    def use(self, recording: Recording) -> None:
        """Note that a recording is used: the others are given up before it."""
        for key, known in self._by_key.items():
            if recording in known:
                self._by_key.move_to_end(key)
                return

    def add(self, key: Key, make: Callable[[], Recording]) -> Recording | None:
        """Make another recording; None where there is no room."""
        if len(list(self)) >= self._config.max_recordings and not self._make_room(key):
            return None
        recording = make()
        self._by_key.setdefault(key, []).append(recording)
        return recording

    def close_free(self) -> None:
        """Give back what recordings hold whose results nobody waits for."""
        for each in self:
            if not each.is_pending:
                each.close()

    def __iter__(self) -> Iterator[Recording]:
        return (each for known in self._by_key.values() for each in known)

    def _make_room(self, key: Key) -> bool:
        """Do what `on_limit` says; tells whether there is room now."""
        limit, on_limit = self._config.max_recordings, self._config.on_limit
        if on_limit == "lru" and self._forget_oldest():
            return True
        count = "1 recording" if limit == 1 else f"{limit} recordings"
        text = f"{self._what} needs more than {count}: {self._what_changes(key)}"
        if on_limit == "error":
            raise CaptureError(f"{text}\n  give a larger max_recordings, or on_limit='eager'")
        if not self._is_told or self._config.or_error:
            self._is_told = True
            count_skip(Skip(text, None, "pad sizes to a few (buckets), or give a larger max_recordings", "limit"))
            tell(f"{text}\n  other calls run uncaptured", self._config)
        return False

    def _forget_oldest(self) -> bool:
        for key, known in self._by_key.items():
            for each in known:
                if not each.is_pending:
                    known.remove(each)
                    if not known:
                        del self._by_key[key]
                    each.close()
                    return True
        return False

    def _what_changes(self, key: Key) -> str:
        """Name the parts by which recordings differ, and the key of one that was not made."""
        columns = zip(self._names, zip(*self._by_key, key, strict=True), strict=True)
        return ", ".join(name for name, values in columns if len(set(values)) > 1) or "what they saved is still in use"

    def close(self) -> None:
        for each in self:
            each.close()
        self._by_key.clear()
        if (on_close := self._on_close()) is not None:
            on_close()
