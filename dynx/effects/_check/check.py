"""`check`: compare a compiled function with eager code in everything that it does."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

import torch

from dynx._reading.user_location import first_line, location_of
from dynx._torch.autograd.capture_cache import is_running
from dynx._torch.compilation.anew import backend_of, config_value, is_fullgraph
from dynx._torch.compilation.unwrap import unwrap
from dynx._torch.tracing.stack import RawFrame
from dynx.effects._check.child import refuse_if_impossible
from dynx.effects._check.facts import Tolerance
from dynx.effects._check.program import Program
from dynx.effects._check.stages import first_node, first_stage, name_of
from dynx.effects._check.trial import Trial, compare
from dynx.effects._world.world import Call, has_variables
from dynx.errors import UsageError
from dynx.records.check import AUTOGRAD_CACHE, DONATED_BUFFER, FALLBACK_RANDOM, CheckReport
from dynx.records.compile import Compile
from dynx.records.graph_break import GraphBreak
from dynx.records.location import Location


def check(
    fn: Callable[..., Any],
    /,
    *args: Any,
    inputs: Iterable[Any] | None = None,
    calls: int = 2,
    isolate: Literal["copy", "fork"] = "copy",
    state: Mapping[str, Any] | None = None,
    backend: Any = None,
    rtol: float | None = None,
    atol: float | None = None,
    bisect: bool = False,
    compiled_autograd: bool = False,
    rng: Literal["aligned", "as is"] = "aligned",
    change: Callable[[], Any] | None = None,
    **kwargs: Any,
) -> CheckReport:
    """Call a function eagerly and compiled, and compare everything that the calls did.

    Both sides, eager and compiled, use copies of the function's arguments, closure, globals, class attributes and modules, so
    that the program's objects, cache entries, counters and RNG states stay unchanged. After each call, `check` compares the
    result; all mutations; which variables hold the same object, and which tensors share memory; the exception; the output on
    stdout; the RNG states; and the gradients of the result.

    Args:
        fn: A function, method or module, compiled or not; a compiled function keeps its backend and `fullgraph`.
        args: Positional arguments of the first calls.
        inputs: Arguments of further calls: for each call a tuple of positional arguments, or a single argument. Other sizes
            and values reveal missing guards.
        calls: Number of calls with each set of arguments. The second call reveals effects that occur only while Dynamo traces.
        isolate: `"copy"`: copy objects without calling the user's code. An object that cannot be copied, such as an open file,
            is used by both sides and listed in `CheckReport.shared`. `"fork"`: also run each side in a forked process with one
            thread, so that nothing is shared; a compiled function that ends its process is a difference. Not with CUDA.
        state: Further objects that the function changes, by name, if neither its code nor its arguments lead to them: modules,
            classes, lists, dicts, sets, or objects with attributes.
        backend: A backend of torch.compile. Default: the backend of `fn`, or "eager" if `fn` is not compiled.
        rtol: Relative tolerance for numbers. If `rtol` and `atol` are None, the defaults of `torch.testing.assert_close` apply.
        atol: Absolute tolerance.
        rng: `"aligned"`: inductor draws the random numbers of eager code (`fallback_random`), so that dropout can be compared.
            `"as is"`: inductor draws its own random numbers, and results that depend on them differ.
        change: A function that changes something, such as an attribute, a hook or an environment variable. It is called on each
            side after all calls, and changes the copies; then all calls are made again. Compiled code has to notice the change.
        bisect: Find the first graph node that causes a difference when it is compiled, by about log2(number of nodes) further
            comparisons.
        compiled_autograd: Compiled autograd captures the backward passes of the compiled side, and the backend compiles them.
            torch has one cache of captures for the process: those that the program has made are captured again.
        kwargs: Keyword arguments of all calls.

    Returns:
        A `CheckReport` with `ok`, `diffs`, `stage` (the stage of compilation that causes a difference), `graph_breaks`,
        `is_vacuous` (whether nothing was compiled) and `assert_ok()`.

    Raises:
        UsageError: An argument is invalid. With `isolate="fork"` also: CUDA is available, the system has no fork, eager code
            ends the process, or `fn` needs gradients and a CUDA build of torch has computed some before in this process.

    Example:
        >>> import torch, dynx
        >>> class Items(list):
        ...     pass
        >>> def extend(items, x):
        ...     items += [1]
        ...     return x * 2
        >>> report = dynx.check(extend, Items(), torch.ones(3))  # torch before 2.15 loses the change
        >>> report.calls
        2
    """
    _check_types(fn, inputs, state, backend)
    if compiled_autograd and is_running():
        raise UsageError("a captured backward pass is running\n  call check() before backward(), not in a hook")
    _check_options(rng, change, isolate, bisect=bisect)
    all_calls = _calls_of(args, kwargs, inputs, calls)
    changed_at = len(all_calls) if change is not None else None
    all_calls = all_calls if change is None else [*all_calls, *all_calls]
    original, chosen, fullgraph = _original_and_settings(fn, backend)
    tolerance, forks, is_aligned = Tolerance(rtol, atol), isolate == "fork", rng == "aligned"
    program = Program(original, all_calls, state or {}, tolerance, forks, fullgraph, change, changed_at, is_aligned)
    program = program._replace(captures_backward=compiled_autograd)
    return _with_stage(_report(program, chosen, _compared(program, chosen)), program, chosen, bisect=bisect)


def _check_options(rng: str, change: Any, isolate: str, *, bisect: bool) -> None:
    if rng not in ("aligned", "as is"):
        raise UsageError(f"rng={rng!r} is not known\n  pass 'aligned' or 'as is'")
    if change is not None and not callable(change):
        raise UsageError(f"change={change!r} is not callable\n  pass a function without arguments")
    if isolate not in ("copy", "fork"):
        raise UsageError(f"isolate={isolate!r} is not known\n  pass 'copy' or 'fork'")
    if isolate == "fork":
        refuse_if_impossible()
        if bisect:
            raise UsageError('bisect=True needs one process, and isolate="fork" runs several\n  pass isolate="copy"')


def _compared(program: Program, backend: Any) -> Trial:
    try:
        return compare(program, backend, watches=True)
    except RecursionError:
        raise UsageError(
            "the arguments or variables are nested deeper than Python's recursion limit\n"
            "  raise the limit with sys.setrecursionlimit"
        ) from None


def _report(program: Program, backend: Any, trial: Trial) -> CheckReport:
    return CheckReport(
        getattr(program.fn, "__qualname__", type(program.fn).__qualname__),
        trial.diffs,
        len(program.calls),
        sum(isinstance(record, Compile) and bool(record.nodes) for record in trial.records),
        tuple(_distinct(record for record in trial.records if isinstance(record, GraphBreak))),
        name_of(backend),
        _location_of(program.fn),
        trial.eager.shared,
        raised=trial.raised,
        leaks=trial.eager.leaks,
        unread=trial.eager.unread,
        settings=_settings(program),
        draws=trial.eager.draws,
        changed_at=program.changed_at,
        is_whole=trial.eager.is_whole,
    )


def _settings(program: Program) -> Mapping[str, bool]:
    """Return the torch settings that a check changes for compiled calls, as a dict from the full name to the new value."""
    wanted = {DONATED_BUFFER: False, AUTOGRAD_CACHE: False}
    if program.aligns_random_numbers:
        wanted[FALLBACK_RANDOM] = True
    return {name: value for name, value in wanted.items() if config_value(name) != value}


def _distinct(breaks: Iterable[GraphBreak]) -> Iterable[GraphBreak]:
    """Return one graph break per line and reason: Dynamo reports a break twice if it both inlines and compiles a function."""
    return {(one.location.own, one.reason): one for one in reversed([*breaks])}.values()


def _with_stage(report: CheckReport, program: Program, backend: Any, *, bisect: bool) -> CheckReport:
    """Return the report with the stage of compilation and, if `bisect`, the first graph node that causes a difference."""
    if report.outcome != "different":
        return report
    stage = first_stage(program, backend, report.diffs)
    report = replace(report, stage=stage.name)
    node = first_node(program, stage.backend, report.diffs) if bisect and stage.name != "Dynamo" else None
    return report if node is None else replace(report, node=node.text, node_location=node.location)


def _check_types(fn: Any, inputs: Any, state: Any, backend: Any) -> None:
    """Raise UsageError for an argument of the wrong type, or a backend that torch does not know."""
    if not callable(fn):
        raise UsageError(f"{fn!r} is not callable\n  pass a function, a method or a module")
    if inspect.iscoroutinefunction(fn):
        raise UsageError(f"{fn.__qualname__} is a coroutine function\n  check a function that runs it")
    if inputs is not None and (not isinstance(inputs, Iterable) or isinstance(inputs, (str, Mapping, torch.Tensor))):
        raise UsageError("inputs is no list\n  pass a list with the arguments of each call: inputs=[(x, y), (x2, y2)]")
    if state is not None and not isinstance(state, Mapping):
        raise UsageError('state is no dict\n  pass the objects by name: state={"registry": registry}')
    for name, value in (state or {}).items():
        if not has_variables(value):
            raise UsageError(
                f"state[{name!r}] is {value!r}, which holds nothing that can be copied\n"
                "  pass the module, class, container or object that holds it"
            )
    known = torch.compiler.list_backends(exclude_tags=())
    if isinstance(backend, str) and backend not in known:
        raise UsageError(f"there is no backend {backend!r}\n  valid choices: {', '.join(known)}")
    if backend is not None and not isinstance(backend, str) and not callable(backend):
        raise UsageError(f"backend={backend!r} is no backend\n  pass a name, or a function that takes a GraphModule and inputs")


def _calls_of(args: tuple[Any, ...], kwargs: dict[str, Any], inputs: Any, calls: int) -> list[Call]:
    if type(calls) is not int or calls < 1:
        raise UsageError(f"calls={calls!r} is not a positive int\n  pass the number of calls with the same arguments")
    first = [Call(args, kwargs)] if args or kwargs or inputs is None else []
    further = [Call(each if isinstance(each, tuple) else (each,), kwargs) for each in inputs or ()]
    if not first and not further:
        raise UsageError("inputs is empty, and there are no other arguments\n  pass the arguments of at least one call")
    return [call for call in (*first, *further) for _ in range(calls)]


def _original_and_settings(fn: Any, backend: Any) -> tuple[Any, Any, bool]:
    """Return the uncompiled function, the backend to use, and whether graph breaks raise an error (`fullgraph`)."""
    unwrapped = unwrap(fn)
    if (compiled := backend_of(unwrapped.compiled)) is None:
        return fn, "eager" if backend is None else backend, False
    original = unwrapped.original if unwrapped.module is None else unwrapped.module
    return original, compiled if backend is None else backend, is_fullgraph(unwrapped.compiled)


def _location_of(fn: Any) -> Location | None:
    """Return the first line of the Python function that `fn` is or calls (`forward` of a module); None if there is none."""
    code = unwrap(fn).code
    return location_of(RawFrame(code.co_filename, first_line(code), code.co_qualname)) if code is not None else None
