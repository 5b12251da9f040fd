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


class _Handler(logging.Handler):
    """Hears the warnings of torch's loggers on one thread; prints nothing."""

    def __init__(self, tell: Tell) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread:
            self._tell(record.getMessage(), record.name)


class Messages:
    """A handle: `remove()` stops hearing."""

    def __init__(self, tell: Tell) -> None:
        self._handler = _Handler(tell)
        self._tell = tell
        for name in _LOGGERS:
            logging.getLogger(name).addHandler(self._handler)
        self._shown = warnings.showwarning
        self._thread = threading.get_ident()
        warnings.showwarning = self._show

    def remove(self) -> None:
        for name in _LOGGERS:
            logging.getLogger(name).removeHandler(self._handler)
        if warnings.showwarning == self._show:  # somebody may have put theirs on top
            warnings.showwarning = self._shown

    def _show(self, message: Any, category: Any, filename: str, lineno: int, file: Any = None, line: Any = None) -> None:
        if threading.get_ident() == self._thread and _said_by_torch():
            self._tell(str(message), category.__name__)
        self._shown(message, category, filename, lineno, file, line)


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
