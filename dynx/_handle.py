"""Base class of the handles that dynx returns for installed hooks, probes and pins: `remove()` uninstalls them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Handle(ABC):
    """Handle of an installed hook, probe or setting; `remove()` uninstalls it.

    Used as a context manager, a handle calls `remove()` at the end of the block.
    """

    __slots__ = ()

    @abstractmethod
    def remove(self) -> None:
        """Uninstall the hook, probe or setting and restore the previous state; a second call does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.remove()
