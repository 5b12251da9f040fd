"""The environment variables of the process, which a world has as copies too."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

_SET_BY_INDUCTOR = ("TORCHINDUCTOR_", "_TORCHINDUCTOR_", "TRITON_")  # such as where its caches are


class Environment:
    """A copy of `os.environ`."""

    def __init__(self) -> None:
        self._values = dict(os.environ)
        self._first = dict(self._values)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Give the process this environment; at the end keep what it is then, and restore the former one."""
        before = dict(os.environ)
        _set(self._values)
        try:
            yield
        finally:
            self._values = dict(os.environ)
            _set(before)

    def changes(self) -> dict[str, str | None]:
        """Return the variables that have another value than in the beginning, while the environment is entered."""
        now = dict(os.environ)
        names = sorted(name for name in {*now, *self._first} if not name.startswith(_SET_BY_INDUCTOR))
        return {name: now.get(name) for name in names if now.get(name) != self._first.get(name)}


def _set(values: dict[str, str]) -> None:
    for name in os.environ.keys() - values.keys():
        del os.environ[name]
    for name, value in values.items():
        if os.environ.get(name) != value:
            os.environ[name] = value
