"""`dynx memory file.py::function`: run a program, then print the tensors that a function saved for backward."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from types import CodeType, FrameType, ModuleType
from typing import TYPE_CHECKING, NamedTuple

from dynx.cli.program import function
from dynx.errors import UsageError

if TYPE_CHECKING:
    from dynx.cli.command import Subparsers
    from dynx.records.saved import SavedGraph
    from dynx.records.saved_report import SavedReport


class Caller(NamedTuple):
    """A function on the stack while a graph was compiled."""

    file: str
    line: int  # its first line
    qualname: str


class Compiled(NamedTuple):
    """A graph with its saved tensors, and the functions on the stack when it was compiled, the innermost first."""

    graph: SavedGraph
    callers: tuple[Caller, ...]


def add_to(commands: Subparsers) -> None:
    function.add_command(commands, "memory", "run a program, then list the tensors that one function saved for backward", act)


def act(arguments: argparse.Namespace) -> Callable[[], int]:
    """Load the program, and return the function that runs it and then prints the saved tensors."""
    compiled: list[Compiled] = []

    def print_saved(module: ModuleType, name: str, script: str, *, as_json: bool) -> int:
        return _print_saved(compiled, module, name, script, as_json=as_json)

    run = function.watched(arguments, "memory", print_saved)

    def run_observed() -> int:
        from dynx._torch.compilation.anew import without_autograd_cache
        from dynx.saved import SavedGraphs

        def observe(graph: SavedGraph) -> None:
            compiled.append(Compiled(graph, tuple(_callers())))

        with SavedGraphs(observe), without_autograd_cache():  # a graph from that cache is not traced
            return run()

    return run_observed


def _callers() -> list[Caller]:
    """Return the functions on the stack of this thread, the innermost first."""
    callers: list[Caller] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        callers.append(Caller(code.co_filename, code.co_firstlineno, code.co_qualname))
        frame = frame.f_back
    return callers


def _print_saved(compiled: list[Compiled], module: ModuleType, name: str, script: str, *, as_json: bool) -> int:
    """Print the saved tensors of a function, and return the exit code."""
    from dynx.cli.screen import show

    try:
        report = _report_of(compiled, module, name, script)
    except UsageError as error:
        print(f"dynx: {error}", file=sys.stderr)
        return 2
    if as_json:
        print(report.to_json())
    else:
        show(report)
    return 0


def _report_of(compiled: list[Compiled], module: ModuleType, name: str, script: str) -> SavedReport:
    """Return the graphs of the function `name`: an expression in the script (`model.forward`), or a name (`Model.forward`).

    This includes graphs that were compiled while the function was running, such as those of a model that a training step calls.
    """
    from dynx.records.saved_report import SavedReport

    target = _named(module, name)
    graphs = tuple(one.graph for one in compiled if _belongs(one, {name, target.name}, target.code))
    if not graphs:
        functions = dict.fromkeys(one.graph.location.function for one in compiled if one.graph.location is not None)
        known = f"graphs that save tensors are those of {', '.join(functions)}" if functions else "no graph saved a tensor"
        raise UsageError(f"{script} compiled no graph of {name} that saves tensors for backward\n  {known}")
    rules = tuple(dict.fromkeys(rule for graph in graphs for rule in graph.rules))
    forward, backward = (max(getattr(graph, peak) for graph in graphs) for peak in ("forward_peak", "backward_peak"))
    return SavedReport(graphs, (), forward, backward, "simulated", rules)


class Named(NamedTuple):
    """The object that an expression in a program names."""

    name: str  # as reports have it: "Model.forward" for a module
    code: CodeType | None  # None if it is not a function


def _named(module: ModuleType, expression: str) -> Named:
    from dynx._torch.compilation.unwrap import unwrap

    first, *rest = expression.split(".")
    target = vars(module).get(first)
    for attribute in rest:
        target = getattr(target, attribute, None)
    unwrapped = unwrap(target)
    name = f"{type(unwrapped.module).__qualname__}.forward" if unwrapped.module is not None else expression
    return Named(name, unwrapped.code if target is not None else None)


def _belongs(compiled: Compiled, names: set[str], code: CodeType | None) -> bool:
    """Return whether a graph belongs to a function, or was compiled while the function was running."""
    location = compiled.graph.location
    if location is not None and location.function in names:
        return True
    return any(
        caller.qualname in names or (code is not None and caller[:2] == (code.co_filename, code.co_firstlineno))
        for caller in compiled.callers
    )
