"""Make new calls of compiled code wait while another thread wants to change Dynamo's cache.

If many threads call compiled code, at least one of them is in a call at any time. A thread that waits for the others therefore
closes a gate: new calls on other threads wait until the gate is open again. Calls that have already begun continue,
and so do the calls of compiled code that they make in turn. While the gate is open, nothing of torch is hooked.

Torch: the wrapper of compiled code calls `eval_frame._maybe_set_eval_frame` to set Dynamo's callback when a call begins, and to
restore the previous callback when it ends. Dynamo is off at that moment, so it does not trace dynx's hook.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any, Final

from dynx._torch.capabilities import hook_point
from dynx._torch.hooks import subscribe

_LONGEST: Final = 60.0  # seconds; a call is not held for longer, even if the thread that closed the gate never opens it

_lock = threading.Lock()
_closed_by: dict[int, int] = {}  # by thread id: how often the thread has closed the gate
_opened = threading.Condition(_lock)
_openings = 0  # how often the gate was opened


@contextmanager
def closed(readers: Callable[[], frozenset[CodeType]]) -> Iterator[None]:
    """Close the gate: until this context ends, other threads that call compiled code wait before the call begins.

    `readers` returns the code objects of the functions that read the cache; a call made by such a function does not wait.
    """

    def before(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if args and args[0] is not None:  # None turns Dynamo off
            wait(readers())

    global _openings
    thread = threading.get_ident()
    with _lock:
        _closed_by[thread] = _closed_by.get(thread, 0) + 1
    subscription = subscribe(hook_point("enter_compiled"), before, on_error=lambda hook, error: None)
    try:
        yield
    finally:
        subscription.remove()
        with _lock:
            _closed_by[thread] -= 1
            if not _closed_by[thread]:
                del _closed_by[thread]
            if not _closed_by:
                _openings += 1
                _opened.notify_all()


def wait(readers: frozenset[CodeType]) -> None:
    """Wait while the gate is closed; return at once if this thread closed it or is already in a call that reads the cache.

    Functions that read the cache call this first; `readers` are the code objects of these functions.
    """
    if not _closed_by or threading.get_ident() in _closed_by:
        return
    if sum(frame.f_code in readers for frame, _ in traceback.walk_stack(sys._getframe())) <= 1:
        dynx_holds_this_call()


def dynx_holds_this_call() -> None:
    """Wait until the gate is open; the module `quiescence` does not count a thread that waits here as a reader of the cache."""
    with _opened:
        before = _openings
        _opened.wait_for(lambda: not _closed_by or _openings != before, timeout=_LONGEST)


def _open_in_child() -> None:
    """Open the gate in a forked process, which does not have the thread that would open it."""
    global _lock, _opened
    _closed_by.clear()
    _lock = threading.Lock()
    _opened = threading.Condition(_lock)


os.register_at_fork(after_in_child=_open_in_child)
