"""`Environment`: a copy of the environment variables, which the calls of a check change instead of those of the process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

_SET_BY_INDUCTOR = ("TORCHINDUCTOR_", "_TORCHINDUCTOR_", "TRITON_")  # such as the folders of its caches


class Environment:
    """A copy of `os.environ`, which the calls of a check change instead of the environment variables of the program."""

    def __init__(self) -> None:
        self._values = dict(os.environ)
        self._first = dict(self._values)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """In a `with` block, set `os.environ` to this copy. At its end, update the copy, and restore `os.environ`."""
        before = dict(os.environ)
        _change(before, self._values)
        try:
            yield
        finally:
            self._values = dict(os.environ)
            _change(self._values, before)

    def changes(self) -> dict[str, str | None]:
        """Return variables added or changed since the copy was made, and None for removed ones; use only inside `entered()`."""
        now = dict(os.environ)
        names = sorted(name for name in {*now, *self._first} if not name.startswith(_SET_BY_INDUCTOR))
        return {name: now.get(name) for name in names if now.get(name) != self._first.get(name)}


def _change(now: dict[str, str], values: dict[str, str]) -> None:
    """Set the environment variables of the process to `values`; `now` is their current state."""
    for name in now.keys() - values.keys():
        del os.environ[name]
    for name, value in values.items():
        if now.get(name) != value:
            os.environ[name] = value
