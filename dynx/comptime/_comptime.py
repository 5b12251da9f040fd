"""The object `comptime` and its helpers, which traced code calls."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

from dynx._torch.tracing.comptime_variable import recognise
from dynx.comptime._callback import OnError, call
from dynx.comptime._context import ComptimeContext


class Comptime:
    """Run code while torch.compile traces the line; a superset of `torch._dynamo.comptime.comptime`.

    `comptime(fn)` calls `fn(ctx)` with a ComptimeContext each time the line is traced, and is worth what `fn` returns: a
    number, text, None or a ComptimeVar, usable in the traced code; a dynamic number becomes its value, with a guard. `fn` may
    close over variables; it gets real values where they are known at compile time and ComptimeVars where they are not. Also a
    decorator of a function written in place.

    When nothing is traced `fallback` is called instead, without arguments. A callback that raises fails the compilation with
    ComptimeFailed; `on_error="warn"` and `"record"` (into `dynx.watch().troubles`) let it go on, with None as the value.

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
        otherwise = fallback or fallback_fn  # `fallback_fn` is torch's name
        return otherwise() if otherwise is not None else None

    @staticmethod
    def graph_break() -> None:
        """Break the graph here."""
        comptime(lambda ctx: ctx.graph_break())

    @staticmethod
    def print(e: Any) -> None:
        """Print what is known of a value at compile time; the value itself when nothing is traced."""
        comptime(lambda ctx: ctx.print(ctx.get_local("e")), lambda: builtins.print(e))  # noqa: T201 - it prints

    @staticmethod
    def print_graph() -> None:
        """Print the graph traced so far."""
        comptime(lambda ctx: ctx.print_graph())

    @staticmethod
    def print_disas(*, stacklevel: int = 0) -> None:
        """Print the bytecode of the frame, with an arrow at the instruction."""
        comptime(lambda ctx: ctx.print_disas(stacklevel=_level(ctx)))

    @staticmethod
    def print_value_stack(*, stacklevel: int = 0) -> None:
        """Print Python's value stack."""
        comptime(lambda ctx: ctx.print_value_stack(stacklevel=_level(ctx)))

    @staticmethod
    def print_value_stack_and_return(e: Any, *, stacklevel: int = 0) -> Any:
        """Print Python's value stack from within an expression; gives `e`."""
        comptime(lambda ctx: ctx.print_value_stack(stacklevel=_level(ctx)))
        return e

    @staticmethod
    def print_locals(*, stacklevel: int = 0) -> None:
        """Print the locals of the frame."""
        comptime(lambda ctx: ctx.print_locals(stacklevel=_level(ctx)))

    @staticmethod
    def print_bt(*, stacklevel: int = 0) -> None:
        """Print the symbolic frames, outermost first."""
        comptime(lambda ctx: ctx.print_bt(stacklevel=_level(ctx)))

    @staticmethod
    def print_guards() -> None:
        """Print the guards asked for so far."""
        comptime(lambda ctx: ctx.print_guards())

    @staticmethod
    def assert_static(val: Any) -> None:
        """Fail the compilation when a number is dynamic."""
        comptime(lambda ctx: ctx.assert_static(ctx.get_local("val")))

    @staticmethod
    def force_static(val: Any) -> None:
        """Make a dynamic number a constant, by a guard on its value."""
        comptime(lambda ctx: ctx.get_local("val").force_static())

    @staticmethod
    def breakpoint() -> None:
        """Stop in Python's debugger whenever this line is compiled, with `ctx` as a local variable."""

        def inner(inner_ctx: ComptimeContext) -> None:
            ctx = inner_ctx.parent()  # noqa: F841 - for the person at the prompt
            builtins.breakpoint()

        comptime(inner)

    @staticmethod
    def sleep(sec: float) -> None:
        """Wait at compile time, for example to attach a debugger."""
        comptime(lambda ctx: ctx.sleep(ctx.get_local("sec").as_python_constant()))


def _level(ctx: ComptimeContext) -> int:
    level: int = ctx.get_local("stacklevel").as_python_constant() + 1  # the helper's own frame
    return level


comptime = Comptime()
recognise(comptime, call)
