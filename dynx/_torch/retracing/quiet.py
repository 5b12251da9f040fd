"""Keep a trace that the program did not ask for silent on its thread: no log messages, warnings or structured traces."""

from __future__ import annotations

import logging
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from dynx._torch.capabilities import hook_point
from dynx._torch.hooks import HookPoint, wrap

_SHOWWARNING = HookPoint("quiet warnings", "warnings:showwarning", purpose="what-if traces without warnings")
# Python calls it when filters change, as in `catch_warnings`: all modules then forget which warnings they have shown
_FILTERS_MUTATED = HookPoint("quiet filters", "warnings:_filters_mutated", purpose="what-if traces that repeat no warnings")


@contextmanager
def quiet() -> Iterator[None]:
    """Drop the log messages and warnings of this thread inside this context.

    A warning that is dropped is also forgotten: with Python's default filter, which shows a warning once for each line, the
    same warning is shown when the program itself causes it later.
    """
    thread = threading.get_ident()

    def is_of_another_thread(record: logging.LogRecord) -> bool:
        return record.thread != thread

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def shown(*args: Any, **kwargs: Any) -> None:
            if threading.get_ident() != thread:
                original(*args, **kwargs)

        return shown

    handlers = _handlers()
    for handler in handlers:
        handler.addFilter(is_of_another_thread)
    registries = _warning_registries()
    points = [_SHOWWARNING, hook_point("logged_once"), hook_point("logged_once_by_context")]
    if hasattr(warnings, "_filters_mutated"):  # private to Python, which may drop it
        points.append(_FILTERS_MUTATED)
    showing = [wrap(point, make) for point in points]
    try:
        yield
    finally:
        for wrapping in showing:
            wrapping.remove()
        _restore(registries)
        for handler in handlers:
            handler.removeFilter(is_of_another_thread)


def _handlers() -> list[logging.Handler]:
    loggers = [logging.root, *logging.root.manager.loggerDict.values()]
    return list({handler for logger in loggers for handler in getattr(logger, "handlers", ())})


def _warning_registries() -> dict[int, tuple[dict[str, Any], dict[Any, Any] | None]]:
    """Return, for each module, its globals and a copy of the record of warnings that were shown; None if it has no record."""
    found = {}
    for module in tuple(sys.modules.values()):
        namespace = getattr(module, "__dict__", None)
        if type(namespace) is dict:
            registry = namespace.get("__warningregistry__")
            found[id(namespace)] = namespace, dict(registry) if type(registry) is dict else None
    return found


def _restore(registries: dict[int, tuple[dict[str, Any], dict[Any, Any] | None]]) -> None:
    for namespace, before in registries.values():
        now = namespace.get("__warningregistry__")
        if type(now) is not dict or now == before:
            continue
        if before is None:
            del namespace["__warningregistry__"]
        else:
            now.clear()
            now.update(before)
