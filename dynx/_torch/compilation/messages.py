"""Observe the warnings and log messages that torch issues while it compiles.

Warnings are read by wrapping `warnings.showwarning`, log messages by a handler of torch's loggers.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

from dynx._handle import Handle
from dynx._torch import hooks

Report = Callable[[str, str], None]

_LOGGERS = ("torch._dynamo", "torch._inductor", "torch._functorch", "torch.fx.experimental")
_SHOWWARNING = hooks.HookPoint("warning", "warnings:showwarning", purpose="warnings that torch raises while it compiles")


class Messages(logging.Handler, Handle):
    """A handle that reports each warning and log message of torch on this thread: it calls `report(text, origin)`.

    `origin` is the name of the logger or the class of the warning. Warnings that the user's own code raises are not reported.
    If a message cannot be converted to text, the report says so.
    """

    def __init__(self, report: Report) -> None:
        super().__init__(logging.WARNING)
        self._report: Report | None = report
        self._thread = threading.get_ident()
        for name in _LOGGERS:
            logging.getLogger(name).addHandler(self)
        self._warnings = hooks.wrap(_SHOWWARNING, self._around_showwarning)

    def remove(self) -> None:
        """Stop reporting torch's warnings and log messages.

        If the program later sets `warnings.showwarning` to dynx's wrapper again, the wrapper only calls the original function.
        """
        self._report = None
        for name in _LOGGERS:
            logging.getLogger(name).removeHandler(self)
        self._warnings.remove()

    def emit(self, record: logging.LogRecord) -> None:
        """Report a log record of torch if it was logged on the thread that created this handle."""
        if record.thread == self._thread:
            self._pass_on(record.getMessage, record.name)

    def _around_showwarning(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def showwarning(message: Any, category: Any, *args: Any, **kwargs: Any) -> None:
            if threading.get_ident() == self._thread and self._report is not None and _is_raised_by_torch():
                self._pass_on(message.__str__, category.__name__)
            original(message, category, *args, **kwargs)

        return showwarning

    def _pass_on(self, text: Callable[[], str], origin: str) -> None:
        if self._report is None:
            return
        try:
            self._report(text(), origin)
        except Exception as error:  # noqa: BLE001 - a message that cannot be rendered is still the program's to print
            self._report(f"a message that cannot be shown: {type(error).__name__}", origin)


def _is_raised_by_torch() -> bool:
    """Return whether torch's code called `warnings.warn`; call it only from a replacement of `showwarning`."""
    import torch

    home = os.path.dirname(torch.__file__)
    frame = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename in (warnings.__file__, hooks.__file__):
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None and frame.f_code.co_filename.startswith(home)
