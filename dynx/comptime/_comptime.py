"""The object `comptime`, which traced code calls: `comptime(fn)`, and helpers such as `comptime.print`."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

from dynx._torch.tracing.comptime_variable import recognise
from dynx.comptime._callback import ON_ERROR, OnError, bad_on_error, call
from dynx.comptime._context import ComptimeContext
from dynx.errors import UsageError


class Comptime:
    """Run a callback while torch.compile traces the line that calls it; a superset of `torch._dynamo.comptime.comptime`.

    `comptime(fn)` calls `fn(ctx)` each time the line is traced, and evaluates to the return value of `fn`: a number, str, None,
    a ComptimeVar, or a list or tuple of them. A returned SymInt, SymFloat, SymBool or expression of ComptimeVars (`n + 1`)
    becomes its current value, with a guard. `fn` may close over variables: it gets real values where they are known at compile
    time, else ComptimeVars. Also usable as a decorator, which runs the function where it is defined.

    Args:
        fn: is called with a ComptimeContext.
        fallback: is called without arguments in eager code, to return the value of `comptime(fn)` there; by default it is None.
        on_error: "raise" (default) fails the compilation if `fn` raises; "warn" warns, and "record" adds the error to
            `dynx.watch().troubles`. The compilation then continues with None as the value.
        fallback_fn: torch's name for `fallback`.

    Raises:
        ComptimeFailed: `fn` raised, is not callable, or returned something that traced code cannot use.
        UsageError: the arguments do not fit the signature, or `on_error` has an unknown value.

    Example:
        >>> import torch
        >>> from dynx.comptime import comptime
        >>> @torch.compile(backend="eager")
        ... def f(x):
        ...     y = x + 1
        ...     comptime(lambda ctx: ctx.print(ctx.local("y")))
        ...     return y
        >>> _ = f(torch.ones(3))
        Tensor(float32, [3])
    """

    __slots__ = ("__weakref__",)

    def __call__(
        self,
        fn: Callable[[ComptimeContext], Any],
        fallback: Callable[[], Any] | None = None,
        *,
        on_error: OnError = "raise",
        fallback_fn: Callable[[], Any] | None = None,
    ) -> Any:
        # runs only in eager code: when Dynamo traces the call, it calls `_callback.call` instead
        if on_error not in ON_ERROR:
            raise UsageError(bad_on_error(on_error))
        eager = fallback or fallback_fn
        return eager() if eager is not None else None

    @staticmethod
    def graph_break() -> None:
        """Break the graph at this line."""
        comptime(lambda ctx: ctx.graph_break())

    @staticmethod
    def print(e: Any) -> None:
        """Print what Dynamo knows about a value at compile time; in eager code, print the value itself."""
        comptime(lambda ctx: ctx.print(ctx.get_local("e")), lambda: builtins.print(e))  # noqa: T201 - it prints

    @staticmethod
    def print_graph() -> None:
        """Print the FX graph traced so far."""
        comptime(lambda ctx: ctx.print_graph())

    @staticmethod
    def print_disas(*, stacklevel: int = 0) -> None:
        """Print the traced frame's bytecode, with an arrow at the current instruction; `stacklevel` selects an outer frame."""
        comptime(lambda ctx: ctx.print_disas(stacklevel=_level(ctx)))

    @staticmethod
    def print_value_stack(*, stacklevel: int = 0) -> None:
        """Print the value stack (operands, top last) of the traced frame or, with `stacklevel`, of a frame that inlines it."""
        comptime(lambda ctx: ctx.print_value_stack(stacklevel=_level(ctx)))

    @staticmethod
    def print_value_stack_and_return(e: Any, *, stacklevel: int = 0) -> Any:
        """Print the value stack as `print_value_stack` does and return `e`, so that the call can be part of an expression."""
        comptime(lambda ctx: ctx.print_value_stack(stacklevel=_level(ctx)))
        return e

    @staticmethod
    def print_locals(*, stacklevel: int = 0) -> None:
        """Print the local variables of the traced frame or, with `stacklevel`, of a frame that inlines it."""
        comptime(lambda ctx: ctx.print_locals(stacklevel=_level(ctx)))

    @staticmethod
    def print_bt(*, stacklevel: int = 0) -> None:
        """Print the call stack of the traced frames, outermost first, without the `stacklevel` innermost frames."""
        comptime(lambda ctx: ctx.print_bt(stacklevel=_level(ctx)))

    @staticmethod
    def print_guards() -> None:
        """Print the guards that this trace has installed so far."""
        comptime(lambda ctx: ctx.print_guards())

    @staticmethod
    def assert_static(val: Any) -> None:
        """Fail the compilation if `val` is a dynamic number, that is, a SymInt, SymFloat or SymBool."""
        comptime(lambda ctx: ctx.assert_static(ctx.get_local("val")))

    @staticmethod
    def force_static(val: Any) -> None:
        """Specialize a dynamic number: make it a constant, with a guard on its value."""
        comptime(lambda ctx: ctx.get_local("val").force_static())

    @staticmethod
    def breakpoint() -> None:
        """Call Python's `breakpoint()` whenever Dynamo traces this line, with the ComptimeContext in the local `ctx`."""

        def inner(inner_ctx: ComptimeContext) -> None:
            ctx = inner_ctx.parent()  # noqa: F841 - for the person at the prompt
            builtins.breakpoint()

        comptime(inner)

    @staticmethod
    def sleep(sec: float) -> None:
        """Sleep for `sec` seconds at compile time, for example to attach a debugger."""
        comptime(lambda ctx: ctx.sleep(ctx.get_local("sec").as_python_constant()))


def _level(ctx: ComptimeContext) -> int:
    """Return the frame level that a helper such as `comptime.print_locals` shows: `stacklevel`, plus one for its own frame."""
    level: int = ctx.get_local("stacklevel").as_python_constant() + 1
    return level


comptime = Comptime()
recognise(comptime, call)
