"""Canaries: behaviours of torch that dynx relies on, each tested with a program of a few lines.

A canary raises AssertionError if torch behaves differently. No canary resets or configures torch: each compiles a function of
its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dynx._run import Run
from dynx._torch.compilation.frame import limit_value
from dynx._torch.hooks import installed
from dynx._trace.bus import listen
from dynx.records import Record


def _watched(program: Callable[[], object]) -> Run:
    """Run `program` and return dynx's records of its compilations; raise AssertionError if dynx itself had an error."""
    events: list[Record] = []
    with listen(events.append):
        program()
    run = Run(tuple(events))
    _expect("no trouble in dynx", [f"{trouble.what}: {trouble.why}" for trouble in run.troubles], holds=not run.troubles)
    return run


def _called(fn: Callable[..., Any], *calls: tuple[Any, ...]) -> Run:
    """Compile `fn`, call it with each tuple of arguments in `calls`, and return the records of its compilations."""
    compiled: Any = torch.compile(fn, backend="eager")

    def program() -> None:
        for call in calls:
            compiled(*call)

    return _watched(program)


def _expect(expected: str, actual: object, *, holds: bool) -> None:
    if not holds:
        raise AssertionError(f"expected {expected}, got {actual} with this torch")


def compile_is_recorded() -> None:
    run = _called(lambda x: x + 1, (torch.ones(3),))
    (compile,) = run.compiles
    _expect("one successful compile", compile, holds=compile.outcome == "compiled" and compile.seconds > 0)
    _expect("one node and some guards", compile, holds=compile.nodes == 1 and bool(compile.guards))
    phases = compile.phases
    _expect("seconds by phase", phases, holds=phases["trace"] > 0 and phases["guards"] > 0)


def recompile_has_both_values() -> None:
    run = _called(lambda x: x + 1, (torch.ones(3),), (torch.ones(4),))
    (reason,) = run.recompiles[0].reasons
    _expect("size 3, then 4", reason, holds=(reason.kind, reason.expected, reason.got) == ("size", "3", "4"))
    _expect("the line that uses x", reason, holds=reason.location is not None and reason.location.library is None)
    (dynamic,) = run.dynamic
    values = (dynamic.dim, dynamic.first, dynamic.second)
    _expect("size 0 became dynamic", dynamic, holds=values == ("size 0", "3", "4"))


def global_state_has_both_values() -> None:
    def f(x: Any) -> Any:
        return x * 2

    compiled: Any = torch.compile(f, backend="eager")

    def program() -> None:
        compiled(torch.ones(3))
        with torch.no_grad():
            compiled(torch.ones(3))

    (reason,) = _watched(program).recompiles[0].reasons
    values = (reason.kind, reason.expected, reason.got)
    _expect("grad_mode with both values", reason, holds=values == ("global_state", "grad_mode True", "grad_mode False"))


def graph_break_has_line_and_callee() -> None:
    def f(x: Any) -> Any:
        y = x + 1
        print(end="")  # noqa: T201 - the graph break under test
        return y * 2

    run = _called(f, (torch.ones(3),))
    (graph_break,) = run.graph_breaks
    location = graph_break.location
    _expect("the line of print", location, holds=location.line == f.__code__.co_firstlineno + 2)
    _expect("print, resumable", graph_break, holds=graph_break.callee == "print" and graph_break.resumable)
    attempts = run.compiles[0].attempts
    _expect("a restarted attempt", attempts, holds=attempts[0].outcome == "restarted")
    _expect("a resume function", run.compiles[1], holds=run.compiles[1].resumes == location.line)


def graph_break_in_try_is_not_resumed() -> None:
    def f(x: Any) -> Any:
        try:
            print(end="")  # noqa: T201
        finally:
            x = x + 1
        return x

    run = _called(f, (torch.ones(3),))
    _expect("a graph break without a resume function", run.graph_breaks, holds=not run.graph_breaks[0].resumable)
    _expect("a skipped frame", run.compiles, holds=run.compiles[0].outcome == "skipped")


def generator_is_recorded() -> None:
    def f(x: Any) -> Any:
        yield x + 1

    run = _called(f, (torch.ones(3),))
    _expect("one graph break at the generator", run.graph_breaks, holds=len(run.graph_breaks) == 1)


def recompile_limit_is_recorded() -> None:
    class Counter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.step = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.step += 1
            return x * self.step

    limit = limit_value("recompile_limit") or 8
    run = _called(Counter(), *[(torch.ones(3),)] * (limit + 1))
    gave_up = len(run.gave_up) == 1 and run.compiles[-1].outcome == "gave_up"
    _expect(f"no more compiles after {limit} of them", run.compiles, holds=gave_up)
    reason = run.recompiles[0].reasons[0]
    values = (reason.holder, reason.expected, reason.got)
    _expect("an int on a module: 0, then 1", reason, holds=values == ("module", "0", "1"))


def hooks_are_removed() -> None:
    torch.compile(torch.neg, backend="eager")(torch.ones(3))  # removes a hook of an open watch
    before = installed()  # for example that of `symbols.install()`
    _called(lambda x: x + 2, (torch.ones(3),))
    _expect("the same hooks as before", installed(), holds=installed() == before)


CANARIES: dict[str, Callable[[], None]] = {
    canary.__name__.replace("_", " "): canary
    for canary in (
        compile_is_recorded,
        recompile_has_both_values,
        global_state_has_both_values,
        graph_break_has_line_and_callee,
        graph_break_in_try_is_not_resumed,
        generator_is_recorded,
        recompile_limit_is_recorded,
        hooks_are_removed,
    )
}
