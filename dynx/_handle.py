"""The handle of whatever dynx installs: `remove()` restores what was there before, also as a context manager."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Handle(ABC):
    """Something that was installed and can be removed again.

    Used as a context manager, a handle removes itself at the end of the block.
    """

    __slots__ = ()

    @abstractmethod
    def remove(self) -> None:
        """Restore what was there before; calling it again does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.remove()
