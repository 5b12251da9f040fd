"""The cache of compiled autograd, which the whole process shares, and which does not compare compilers.

Torch: `is_cache_empty` and `clear_cache` of C++; `COMPILE_COUNTER`, which `reset()` replaces, and from which each capture takes
its id.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from dynx._torch import hooks
from dynx._torch.capabilities import hook_point


@dataclass(slots=True)
class Emptied:
    """How often the cache was emptied: by `torch._dynamo.reset()` while captures were observed, and by `clear`."""

    resets: int = 0
    clears: int = 0


emptied = Emptied()


def state() -> tuple[Any, str]:
    """Return a value that is equal as long as the cache has the same entries: each capture, and each reset, changes it."""
    from torch._dynamo import compiled_autograd

    counter = compiled_autograd.COMPILE_COUNTER  # an `itertools.count`: Python 3.14 cannot copy it
    return counter, repr(counter)


def is_empty() -> bool:
    return bool(torch._C._dynamo.compiled_autograd.is_cache_empty())


def clear() -> None:
    """Forget all captures; compiled autograd stays enabled where it is."""
    torch._C._dynamo.compiled_autograd.clear_cache()
    emptied.clears += 1


def is_enabled() -> bool:
    """Whether somebody has enabled compiled autograd."""
    from torch._dynamo import compiled_autograd

    return bool(compiled_autograd.compiled_autograd_enabled)


def is_running() -> bool:
    """Whether a captured backward pass runs, whose entry in the cache must stay."""
    from torch._dynamo import compiled_autograd

    return bool(compiled_autograd.in_compiled_autograd_region)


def captured(compiler: Callable[[Any], Any], stack: ExitStack) -> Callable[[], AbstractContextManager[None]]:
    """Return a context manager that enables compiled autograd on this thread; until `stack` closes, the cache is its own."""
    from torch._dynamo import compiled_autograd

    @contextmanager
    def enable() -> Iterator[None]:
        with _checking(), compiled_autograd._enable(torch.compiler.disable(compiler), dynamic=False):
            yield

    clear()
    stack.callback(clear)
    return enable


def disabled() -> AbstractContextManager[None]:
    """Return a context manager in which backward passes run eagerly, where the program has enabled compiled autograd too."""
    from torch._dynamo import compiled_autograd

    return compiled_autograd._disable()


_checks: list[None] = []


@contextmanager
def _checking() -> Iterator[None]:
    _checks.append(None)
    try:
        yield
    finally:
        _checks.pop()


def is_checking() -> bool:
    """Whether captures are those of `captured`, not of a block or the program."""
    return bool(_checks)


@contextmanager
def enabled(compiler: Callable[[Any], Any], *, dynamic: bool, on_error: hooks.OnError) -> Iterator[None]:
    """Enable compiled autograd on this thread: `compiler` takes each captured `GraphModule` and returns a callable.

    After `torch._dynamo.reset()` on this thread, which disables it, it is enabled again.
    """
    from torch._dynamo import compiled_autograd

    with ExitStack() as stack:
        # a backward pass that begins in a compiled function runs where Dynamo compiles what is called
        enable = functools.partial(compiled_autograd._enable, torch.compiler.disable(compiler), dynamic=dynamic)

        def reset(args: tuple[Any, ...], kwargs: dict[str, Any]) -> hooks.After:
            return lambda result, error: stack.enter_context(enable()) and None

        stack.enter_context(enable())
        with hooks.subscribe(hook_point("capture_reset"), reset, on_error=on_error, this_thread_only=True):
            yield
