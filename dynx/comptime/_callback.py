"""How a callback is run while its line is traced."""

from __future__ import annotations

import bdb
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

from dynx._torch.tracing import comptime_variable, raising, translator
from dynx._torch.tracing.callbacks import Conversion
from dynx._torch.tracing.render import show
from dynx._torch.tracing.stack import tracing_stack
from dynx._trace.dispatch import emit
from dynx._trace.user_location import location_of, user_location
from dynx.comptime import _output
from dynx.comptime._context import ComptimeContext
from dynx.comptime._var import ComptimeVar
from dynx.errors import ComptimeFailed, DynxWarning
from dynx.records import Trouble
from dynx.records.location import short_path

OnError = Literal["raise", "warn", "record"]
ON_ERROR: tuple[str, ...] = get_args(OnError)
_PARAMETERS = ("fn", "fallback", "on_error", "fallback_fn")


def call(tx: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Run `comptime(fn, fallback, on_error=...)` as the traced code calls it; gives the variable of fn's value."""
    given = _bind(args, kwargs)
    on_error: OnError = given["on_error"].as_python_constant() if "on_error" in given else "raise"
    if on_error not in ON_ERROR:
        raise raising.visible_to_user(f"on_error is {on_error!r}\n  at {_where(tx)}\n  give one of {', '.join(ON_ERROR)}")
    conversion = Conversion(tx, lambda variable: ComptimeVar(tx, variable))
    try:
        function = conversion.callback(given["fn"])
    except ComptimeFailed as error:
        raise raising.visible_to_user(f"{error}\n  at {_where(tx)}") from None

    def finish(value: Any) -> Any:
        if value is not None:
            conversion.guard_what_was_read()
        return _as_variable(tx, value, function)

    result = run(tx, function, on_error, changes=conversion.guard_what_was_read, finish=finish)
    for name in conversion.assigned():
        warnings.warn(
            f"the comptime callback {_name(function)} assigns to {name}, which the traced code does not see\n"
            f"  at {_where(tx)}\n  return the value instead",
            DynxWarning,
            stacklevel=2,
        )
    return comptime_variable.constant(None) if result is None else result  # None after an error that was let pass


def run(
    tx: Any,
    function: Callable[..., Any],
    on_error: OnError,
    *,
    changes: Callable[[], None] = lambda: None,
    finish: Callable[[Any], Any] = lambda result: None,
    called: Callable[..., Any] | None = None,
) -> Any:
    """Call `function` with a context that ends when `finish` has made something of its result.

    `changes` is called before the trace changes on account of what was read; errors are told as those of `called`.
    """
    named = called or function
    context = ComptimeContext(tx, changes)
    mark = _output.said_so_far(tx)
    try:
        return finish(function(context))
    except Exception as error:
        if raising.is_of_torch(error):
            _output.carry(tx, mark)
            raise  # graph_break() and the like: the tracer handles it
        text = str(error) if isinstance(error, ComptimeFailed) else _failure(tx, named, error)
        if on_error == "raise" or isinstance(error, bdb.BdbQuit):
            kind = type(error) if isinstance(error, ComptimeFailed) else ComptimeFailed
            raise raising.visible_to_user(text, kind) from error
        if on_error == "warn":
            warnings.warn(text, DynxWarning, stacklevel=2)
        else:
            emit(Trouble(f"comptime callback {_name(named)}", f"{type(error).__name__}: {error}"))
        return None
    finally:
        context._end()


def _bind(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    given = dict(zip(_PARAMETERS, args, strict=False)) | dict(kwargs)
    unknown = set(given) - set(_PARAMETERS)
    if "fn" not in given or len(args) > 2 or unknown:
        raise raising.visible_to_user(
            f"comptime(fn, fallback=None, *, on_error='raise') got {len(args)} arguments "
            f"and {', '.join(kwargs) or 'no keywords'}"
        )
    return given


def _as_variable(tx: Any, result: Any, function: Callable[..., Any]) -> Any:
    if comptime_variable.is_variable(result):
        return result
    if isinstance(result, ComptimeVar):
        return result._known()
    if type(result) in (tuple, list):
        return comptime_variable.sequence(type(result), [_as_variable(tx, each, function) for each in result])
    if comptime_variable.is_symbolic(result):
        result = comptime_variable.pinned(result)
    if comptime_variable.is_literal(result):
        return comptime_variable.constant(result)
    raise raising.visible_to_user(
        f"the comptime callback {_name(function)} returned {show(tx, result) if hasattr(result, 'source') else type(result)}, "
        f"which cannot stand in traced code\n  at {_where(tx)}\n"
        "  return a number, text, None, a ComptimeVar, or a list or tuple of them"
    )


def _failure(tx: Any, function: Callable[..., Any], error: Exception) -> str:
    if isinstance(error, bdb.BdbQuit):
        return f"the debugger in a comptime callback was quit\n  at {_where(tx)}"
    compile_id = translator.trace_id().compile_id
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    raised = ""
    if traceback is not None:
        raised = f"  raised at {short_path(traceback.tb_frame.f_code.co_filename)}:{traceback.tb_lineno}\n"
    return (
        f"the comptime callback {_name(function)} raised {type(error).__name__}: {error}\n"
        f"  at {_where(tx)}, while compiling [{compile_id}]\n{raised}"
        '  on_error="warn" tells it and goes on'
    )


def _where(tx: Any) -> str:
    return str(user_location(tracing_stack()) or location_of(translator.place(tx)))  # a helper of ours is not the user's line


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", type(function).__qualname__))
