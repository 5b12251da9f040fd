"""Behaviours of torch that dynx builds on, each tried on a program of a few lines.

A canary raises when torch behaves otherwise. None resets or configures anything: every one compiles a function of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dynx._torch.compilation.frame import limit_value
from dynx._torch.hooks import installed
from dynx._trace.bus import listen
from dynx.records import Record, Run


def _watched(program: Callable[[], object]) -> Run:
    """Run `program` and give what was seen."""
    events: list[Record] = []
    listening = listen(events.append)
    try:
        program()
    finally:
        listening.remove()
    run = Run(tuple(events))
    expect(not run.troubles, f"dynx could not see: {[f'{each.what}: {each.why}' for each in run.troubles]}")
    return run


def _called(fn: Callable[..., Any], *calls: tuple[Any, ...]) -> Run:
    """Compile `fn` and give what was seen while it was called."""
    compiled: Any = torch.compile(fn, backend="eager")

    def program() -> None:
        for call in calls:
            compiled(*call)

    return _watched(program)


def expect(held: bool, otherwise: str) -> None:
    if not held:
        raise AssertionError(otherwise)


def compile_is_seen() -> None:
    run = _called(lambda x: x + 1, (torch.ones(3),))
    (compile,) = run.compiles
    expect(compile.outcome == "compiled" and compile.seconds > 0, f"one successful compile expected, got {compile}")
    expect(compile.nodes == 1 and bool(compile.guards), f"one node and some guards expected, got {compile}")
    expect(compile.phases["trace"] > 0 and compile.phases["guards"] > 0, f"seconds by phase expected, got {compile.phases}")


def recompile_tells_both_values() -> None:
    run = _called(lambda x: x + 1, (torch.ones(3),), (torch.ones(4),))
    (reason,) = run.recompiles[0].reasons
    expect((reason.kind, reason.expected, reason.got) == ("size", "3", "4"), f"size 3, then 4 expected, got {reason}")
    expect(reason.location is not None and reason.location.library is None, f"the line that uses x expected, got {reason}")
    (dynamic,) = run.dynamic
    expect((dynamic.dim, dynamic.first, dynamic.second) == ("size 0", "3", "4"), f"size 0 became dynamic, got {dynamic}")


def ambient_state_tells_both_values() -> None:
    def f(x: Any) -> Any:
        return x * 2

    compiled: Any = torch.compile(f, backend="eager")

    def program() -> None:
        compiled(torch.ones(3))
        with torch.no_grad():
            compiled(torch.ones(3))

    (reason,) = _watched(program).recompiles[0].reasons
    values = (reason.kind, reason.expected, reason.got)
    expect(
        values == ("global_state", "grad_mode True", "grad_mode False"),
        f"grad_mode with both values expected, got {reason}",
    )


def break_tells_line_and_callee() -> None:
    def f(x: Any) -> Any:
        y = x + 1
        print(end="")  # noqa: T201 - the break under test
        return y * 2

    run = _called(f, (torch.ones(3),))
    (found,) = run.graph_breaks
    expect(found.location.line == f.__code__.co_firstlineno + 2, f"the line of print expected, got {found.location}")
    expect(found.callee == "print" and found.resumable, f"print, resumable expected, got {found}")
    expect(
        run.compiles[0].attempts[0].outcome == "restarted",
        f"a restarted attempt expected, got {run.compiles[0].attempts}",
    )
    expect(run.compiles[1].resumes == found.location.line, f"a resume function expected, got {run.compiles[1]}")


def break_in_try_is_not_resumed() -> None:
    def f(x: Any) -> Any:
        try:
            print(end="")  # noqa: T201
        finally:
            x = x + 1
        return x

    run = _called(f, (torch.ones(3),))
    expect(not run.graph_breaks[0].resumable, f"a break that cannot be resumed expected, got {run.graph_breaks}")
    expect(run.compiles[0].outcome == "skipped", f"a skipped frame expected, got {run.compiles}")


def generator_is_seen() -> None:
    def f(x: Any) -> Any:
        yield x + 1

    run = _called(f, (torch.ones(3),))
    expect(len(run.graph_breaks) == 1, f"one break at the generator expected, got {run.graph_breaks}")


def giving_up_is_seen() -> None:
    class Counter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.step = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.step += 1
            return x * self.step

    limit = limit_value("recompile_limit") or 8
    run = _called(Counter(), *[(torch.ones(3),)] * (limit + 1))
    expect(
        len(run.gave_up) == 1 and run.compiles[-1].outcome == "gave_up",
        f"giving up after {limit} expected, got {run.compiles}",
    )
    reason = run.recompiles[0].reasons[0]
    expect(
        (reason.holder, reason.expected, reason.got) == ("module", "0", "1"),
        f"module int 0, then 1 expected, got {reason}",
    )


def hooks_leave_no_trace() -> None:
    _called(lambda x: x + 2, (torch.ones(3),))
    expect(not installed(), f"no hook expected after watching, still there: {installed()}")


CANARIES: dict[str, Callable[[], None]] = {
    each.__name__.replace("_", " "): each
    for each in (
        compile_is_seen,
        recompile_tells_both_values,
        ambient_state_tells_both_values,
        break_tells_line_and_callee,
        break_in_try_is_not_resumed,
        generator_is_seen,
        giving_up_is_seen,
        hooks_leave_no_trace,
    )
}
