"""Show the errors of a program as Python does, without the frames of dynx in their tracebacks."""

from __future__ import annotations

import contextlib
import os
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dynx.cli.screen import flush

Hook = Callable[[type[BaseException], BaseException, types.TracebackType | None], Any]

_PACKAGE = Path(__file__).parent.parent.parent
_COMMANDS = (str(_PACKAGE / "cli"), str(_PACKAGE / "cli" / "program"))  # not the demo, whose program is a user's
_HOOKS = (str(_PACKAGE / "_torch" / "hooks.py"), str(_PACKAGE / "_child_processes.py"))


def hide_our_frames() -> None:
    """Wrap `sys.excepthook`, which the program may have set, so that the tracebacks it receives have no frames of dynx."""
    sys.excepthook = _without_our_frames(getattr(sys, "excepthook", _missing))


def _without_our_frames(hook: Hook) -> Hook:
    def show(kind: type[BaseException], error: BaseException, traceback: types.TracebackType | None) -> None:
        error.__traceback__ = of_program(traceback)
        try:
            hook(kind, error, error.__traceback__)
        except SystemExit:
            raise
        except BaseException as raised:  # noqa: BLE001 - whatever a hook of the program raises
            _show_both(raised.with_traceback(of_program(raised.__traceback__)), error)

    return show


def _missing(kind: type[BaseException], error: BaseException, traceback: types.TracebackType | None) -> None:
    """Stand in for a `sys.excepthook` that the program has deleted: show the exception as Python then does."""
    with contextlib.suppress(AttributeError, OSError, ValueError):
        sys.stderr.write("sys.excepthook is missing\n")
    sys.__excepthook__(kind, error, traceback)


def _show_both(raised: BaseException, error: BaseException) -> None:
    """Print the exception that an excepthook raised, and the exception that it should have shown, as Python does."""
    flush(sys.stdout)
    with contextlib.suppress(AttributeError, OSError, ValueError):  # stderr is closed
        sys.stderr.write("Error in sys.excepthook:\n")
        sys.__excepthook__(type(raised), raised, raised.__traceback__)
        sys.stderr.write("\nOriginal exception was:\n")
        sys.__excepthook__(type(error), error, error.__traceback__)


def of_program(traceback: types.TracebackType | None) -> types.TracebackType | None:
    """Return the part of a traceback after the frames of dynx that run the program."""
    first = traceback
    while first is not None and not _is_ours(first):
        first = first.tb_next
    while first is not None and _is_ours(first):
        first = first.tb_next
    return _without_hooks(first)


def _is_ours(traceback: types.TracebackType) -> bool:
    return os.path.dirname(traceback.tb_frame.f_code.co_filename) in _COMMANDS


def _without_hooks(traceback: types.TracebackType | None) -> types.TracebackType | None:
    """Return the traceback without the frames of dynx's wrappers around functions of torch and `subprocess.Popen`."""
    if traceback is None:
        return None
    rest = _without_hooks(traceback.tb_next)
    if traceback.tb_frame.f_code.co_filename in _HOOKS:
        return rest
    traceback.tb_next = rest
    return traceback
