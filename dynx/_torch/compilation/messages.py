"""What torch says while it compiles: its warnings and what its loggers print."""

from __future__ import annotations

import logging
import os
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

Tell = Callable[[str, str], None]

_LOGGERS = ("torch._dynamo", "torch._inductor", "torch._functorch", "torch.fx.experimental")


class Messages(logging.Handler):
    """A handle on what torch says on one thread; `remove()` stops hearing. Prints nothing, and never fails the speaker."""

    def __init__(self, tell: Tell) -> None:
        super().__init__(logging.WARNING)
        self._tell: Tell | None = tell
        self._thread = threading.get_ident()
        for name in _LOGGERS:
            logging.getLogger(name).addHandler(self)
        self._shown = warnings.showwarning
        warnings.showwarning = self._show

    def remove(self) -> None:
        self._tell = None  # somebody may have saved `showwarning` while it was ours, and put it back later
        for name in _LOGGERS:
            logging.getLogger(name).removeHandler(self)
        if warnings.showwarning == self._show:
            warnings.showwarning = self._shown

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread:
            self._hear(record.getMessage, record.name)

    def _show(self, message: Any, category: Any, filename: str, lineno: int, file: Any = None, line: Any = None) -> None:
        if threading.get_ident() == self._thread and self._tell is not None and _said_by_torch():
            self._hear(message.__str__, category.__name__)
        self._shown(message, category, filename, lineno, file, line)

    def _hear(self, text: Callable[[], str], origin: str) -> None:
        if self._tell is None:
            return
        try:
            self._tell(text(), origin)
        except Exception as error:  # noqa: BLE001 - a message that cannot be rendered is still the program's to print
            self._tell(f"a message that cannot be shown: {type(error).__name__}", origin)


def listen_to_messages(tell: Tell) -> Messages:
    """Call `tell(text, origin)` for what torch says on this thread until the handle is removed.

    In place only while torch compiles: the user's own warnings take their usual way.
    """
    return Messages(tell)


def _said_by_torch() -> bool:
    import torch

    home = os.path.dirname(torch.__file__)
    frame = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename == warnings.__file__:
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None and frame.f_code.co_filename.startswith(home)
