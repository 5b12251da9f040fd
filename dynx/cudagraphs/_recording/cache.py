"""The cache of the recordings of one graph or function, limited by `max_recordings` and `on_limit`."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Generic, TypeVar
from weakref import WeakMethod, WeakSet

from dynx.cudagraphs._config import Config
from dynx.cudagraphs._notices import warn_or_raise
from dynx.cudagraphs._recording.replayable import Replayable
from dynx.cudagraphs._stats import count_skip
from dynx.errors import CaptureError
from dynx.records.cudagraphs import Skip

Key = tuple[Any, ...]
R = TypeVar("R", bound=Replayable)

_all: WeakSet[RecordingCache[Any]] = WeakSet()


def close_all() -> None:
    """Close all recordings of this process and release their memory; later calls record again.

    Memory that a backward pass still needs is released after it.
    """
    for cache in tuple(_all):
        cache.close()


class RecordingCache(Generic[R]):
    """The recordings of one graph or function. Keys consist of the scalars, addresses, layouts and state at capture.

    `max_recordings` and `on_limit` of `config` bound the cache. In messages, `what` is the name of the graph or function, and
    `names` are the names of the parts of a key. The caller holds `lock` while it replays or captures, so that `close` waits.
    `close` also calls the method `on_close`, which is referenced weakly.
    """

    def __init__(
        self, config: Config, what: str, names: Sequence[str], lock: AbstractContextManager[Any], on_close: Callable[[], None]
    ) -> None:
        self._config, self._lock = config, lock
        self._what = what
        self._names = names
        self._by_key: OrderedDict[Key, list[R]] = OrderedDict()  # least recently used first
        self._on_close = WeakMethod(on_close)  # weak, so that the cache does not keep the method's object alive
        self._has_warned = False
        _all.add(self)

    def find(self, key: Key, fits: Callable[[R], bool]) -> R | None:
        """Return a recording with this key for which `fits` returns True; None if there is none."""
        if key in self._by_key:
            self._by_key.move_to_end(key)
        return next((recording for recording in self._by_key.get(key, ()) if fits(recording)), None)

    def touch(self, recording: R) -> None:
        """Mark a recording as most recently used."""
        for key, recordings in self._by_key.items():
            if recording in recordings:
                self._by_key.move_to_end(key)
                return

    def add(self, key: Key, record: Callable[[], R]) -> R | None:
        """Call `record` and store the recording; return None if the cache is full and `on_limit` makes no room."""
        if len(list(self)) >= self._config.max_recordings and not self._make_room(key):
            return None
        recording = record()
        self._by_key.setdefault(key, []).append(recording)
        return recording

    def move(self, old: Key, new: Key) -> None:
        """Store the recordings of the key `old` under the key `new`."""
        if old != new:
            self._by_key.setdefault(new, []).extend(self._by_key.pop(old, ()))

    def close_free(self) -> None:
        """Release the memory of recordings, except of those whose saved tensors a backward pass still needs."""
        for recording in self:
            if not recording.is_pending:
                recording.close()

    def __iter__(self) -> Iterator[R]:
        return (recording for recordings in self._by_key.values() for recording in recordings)

    def _make_room(self, key: Key) -> bool:
        """Apply `on_limit` to a full cache: close a recording, raise or warn. Returns whether a recording may be added."""
        limit, on_limit = self._config.max_recordings, self._config.on_limit
        if on_limit == "lru" and self._close_oldest():
            return True
        count = "1 recording" if limit == 1 else f"{limit} recordings"
        too_many = f"{self._what} needs more than {count}: {self._what_changes(key)}"
        if on_limit == "error":
            raise CaptureError(
                f"{too_many}\n  pass a larger max_recordings, or on_limit='eager' to run further calls uncaptured"
            )
        if not self._has_warned or self._config.or_error:
            self._has_warned = True
            count_skip(Skip(too_many, None, "pad sizes to a few (buckets), or pass a larger max_recordings", "limit"))
            warn_or_raise(f"{too_many}\n  other calls run uncaptured; to record them, raise max_recordings", self._config)
        return False

    def _close_oldest(self) -> bool:
        for key, recordings in self._by_key.items():
            for recording in recordings:
                if not recording.is_pending:
                    recordings.remove(recording)
                    if not recordings:
                        del self._by_key[key]
                    recording.close()
                    return True
        return False

    def _what_changes(self, key: Key) -> str:
        """Return a text for messages that names the parts in which the recordings' keys and `key` differ."""
        columns = zip(self._names, zip(*self._by_key, key, strict=True), strict=True)
        changing = [name for name, values in columns if len(set(values)) > 1]
        return f"they differ in {', '.join(changing)}" if changing else "backward passes still need tensors of all of them"

    def close(self) -> None:
        """Empty the cache and release the memory of the recordings; memory that a backward pass needs is released after it."""
        with self._lock:
            self.close_free()
            self._by_key.clear()
            if (on_close := self._on_close()) is not None:
                on_close()
