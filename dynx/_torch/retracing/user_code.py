"""Do not run code of the program in a trace that the program did not ask for: the trace ends there.

Code of the program runs at compile time in callbacks of `comptime`, and in functions under `assume_constant_result`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from dynx._torch.capabilities import hook_point
from dynx._torch.hooks import not_in_retraces, wrap


@contextmanager
def not_run() -> Iterator[None]:
    """End a trace of this thread where it would run code of the program, inside this context: it raises RunsUserCode."""
    with ExitStack() as stack:
        for name in ("comptime_call", "constant_result"):
            stack.callback(wrap(hook_point(name), _stopping).remove)
        yield


def _stopping(original: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        not_in_retraces()
        return original(*args, **kwargs)

    return call
