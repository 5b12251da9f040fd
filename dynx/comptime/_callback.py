"""Run a comptime callback: fill its closure with values or ComptimeVars, handle its errors, return its value to the trace."""

from __future__ import annotations

import bdb
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from traceback import walk_tb
from typing import Any, Literal, get_args

from dynx._torch.tracing import comptime_variable, raising, translator
from dynx._torch.tracing.callbacks import Conversion
from dynx._torch.tracing.render import show
from dynx._trace.dispatch import emit
from dynx.comptime import _output
from dynx.comptime._context import ComptimeContext
from dynx.comptime._values.expression import plain, traced_line
from dynx.comptime._values.var import ComptimeVar
from dynx.errors import ComptimeFailed, DynxWarning, UsageError
from dynx.records import Trouble
from dynx.records.location import short_path

OnError = Literal["raise", "warn", "record"]
ON_ERROR: tuple[str, ...] = get_args(OnError)
_PARAMETERS = ("fn", "fallback", "on_error", "fallback_fn")


def call(tx: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Run the callback of a traced call `comptime(fn, fallback, on_error=...)`; return its value as a VariableTracker.

    `args` and `kwargs` are the arguments of the traced call, as VariableTrackers (Dynamo's symbolic variables).
    """
    arguments = _bind(args, kwargs)
    on_error: OnError = arguments["on_error"].as_python_constant() if "on_error" in arguments else "raise"
    if on_error not in ON_ERROR:
        raise raising.visible_to_user(f"comptime() failed: {bad_on_error(on_error)}\n  at {traced_line(tx)}", UsageError)
    stand_ins: weakref.WeakSet[Any] = weakref.WeakSet()
    conversion = Conversion(tx, lambda variable: ComptimeVar(tx, variable, stand_ins))
    try:
        fn = conversion.callback(arguments["fn"])
    except ComptimeFailed as error:
        raise raising.visible_to_user(f"comptime() cannot call this callback: {error}\n  at {traced_line(tx)}") from None

    def finish(value: Any) -> Any:
        if value is not None:
            conversion.guard_what_was_read()
        return _as_variable(tx, value, fn)

    try:
        result = run(tx, fn, on_error, before_change=conversion.guard_what_was_read, finish=finish)
    finally:
        for stand_in in list(stand_ins):
            stand_in._end()
    for name in conversion.assigned():
        warnings.warn(
            f"the comptime callback {_name(fn)} assigns to {name}, but the traced code does not see the new value\n"
            f"  at {traced_line(tx)}\n  return the value instead",
            DynxWarning,
            stacklevel=2,
        )
    return comptime_variable.constant(None) if result is None else result  # None: fn raised and on_error is not "raise"


def run(
    tx: Any,
    fn: Callable[[ComptimeContext], Any],
    on_error: OnError,
    *,
    before_change: Callable[[], None] = lambda: None,
    finish: Callable[[Any], Any] = lambda result: None,
    reported_as: Callable[..., Any] | None = None,
) -> Any:
    """Call `fn` with a new ComptimeContext and return `finish(result)`; afterwards the context is invalid.

    Args:
        tx: the InstructionTranslator of the frame whose line is traced.
        fn: the callback.
        on_error: what to do with an exception of `fn`: "raise" raises it; "warn" and "record" report it and return None.
        before_change: called before `fn` changes the trace, for example by `ctx.check`, to guard on the values it has read.
        finish: converts the result while the context is valid.
        reported_as: the user's callable, to be named in messages, if `fn` is a wrapper around it.
    """
    reported = reported_as or fn
    context = ComptimeContext(tx, before_change)
    outputs_before = _output.output_count(tx)
    try:
        return finish(fn(context))
    except Exception as error:
        if raising.is_of_torch(error):
            _output.carry_over(tx, outputs_before)
            raise  # a graph break or a restart: the tracer handles it
        text = str(error) if isinstance(error, ComptimeFailed) else _failure(tx, reported, error)
        if on_error == "raise" or isinstance(error, bdb.BdbQuit):
            kind = type(error) if isinstance(error, ComptimeFailed) else ComptimeFailed
            also = [AssertionError] if isinstance(error, AssertionError) else []  # as torch's `comptime` raises it
            raise raising.visible_to_user(text, kind, *also) from error
        if on_error == "warn":
            warnings.warn(text, DynxWarning, stacklevel=2)
        else:
            emit(Trouble(f"comptime callback {_name(reported)}", f"{type(error).__name__}: {error}"))
        return None
    finally:
        context._end()


def bad_on_error(on_error: object) -> str:
    """Return the error message for an invalid value of `on_error`."""
    return f"on_error is {on_error!r}\n  valid choices: {', '.join(ON_ERROR)}"


def _bind(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `comptime(...)` by parameter name; raise UsageError if they do not fit its signature."""
    arguments = dict(zip(_PARAMETERS, args, strict=False)) | dict(kwargs)
    unknown = set(arguments) - set(_PARAMETERS)
    if "fn" not in arguments or len(args) > 2 or unknown:
        raise raising.visible_to_user(
            f"comptime() got {len(args)} positional arguments and {', '.join(kwargs) or 'no'} keywords\n"
            "  call it as comptime(fn, fallback=None, *, on_error='raise')",
            UsageError,
        )
    return arguments


def _as_variable(tx: Any, value: Any, fn: Callable[..., Any]) -> Any:
    """Convert a callback's return value to a VariableTracker; raise ComptimeFailed if traced code cannot use the value."""
    if comptime_variable.is_variable(value):
        return value
    if isinstance(value, ComptimeVar):
        return value._realized()
    value = plain(value)
    if type(value) in (tuple, list):
        return comptime_variable.sequence(type(value), [_as_variable(tx, item, fn) for item in value])
    if comptime_variable.is_symbolic(value):
        value = comptime_variable.pinned(value)
    if comptime_variable.is_literal(value):
        return comptime_variable.constant(value)
    raise raising.visible_to_user(
        f"the comptime callback {_name(fn)} returned {show(tx, value) if hasattr(value, 'source') else type(value)}, "
        f"which traced code cannot use\n  at {traced_line(tx)}\n"
        "  return a number, str, None, a ComptimeVar, or a list or tuple of them"
    )


def _failure(tx: Any, fn: Callable[..., Any], error: Exception) -> str:
    """Return the error message for an exception that a comptime callback raised."""
    if isinstance(error, bdb.BdbQuit):
        return f"the debugger in a comptime callback was quit\n  at {traced_line(tx)}"
    compile_id = translator.trace_id().compile_id
    *_, (frame, line) = walk_tb(error.__traceback__)  # the innermost frame is the last
    return (
        f"the comptime callback {_name(fn)} raised {type(error).__name__}: {error}\n"
        f"  at {traced_line(tx)}, while compiling [{compile_id}]\n  raised at {short_path(frame.f_code.co_filename)}:{line}\n"
        '  pass on_error="warn" to get a warning instead and continue compiling'
    )


def _name(fn: Callable[..., Any]) -> str:
    return str(getattr(fn, "__qualname__", type(fn).__qualname__))
