"""Report the tensors that one function of a program saved while the program ran, for `dynx memory`."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import CodeType
from typing import Any, NamedTuple

from dynx._torch.compilation.anew import without_autograd_cache
from dynx._torch.compilation.unwrap import unwrap
from dynx.errors import UsageError
from dynx.records.saved import SavedGraph
from dynx.records.saved_report import SavedReport
from dynx.saved._measure.trial import simulated_peaks
from dynx.saved._observe import SavedGraphs


class Caller(NamedTuple):
    """A Python function that was on the stack, and thus running, while a graph was compiled."""

    file: str
    line: int  # its first line
    qualname: str


class Compiled(NamedTuple):
    """A graph with its saved tensors, and the functions on the stack when it was compiled, the innermost first."""

    graph: SavedGraph
    callers: tuple[Caller, ...]

    def belongs_to(self, names: set[str], code: CodeType | None) -> bool:
        """Return whether the graph is of a function in `names`, or was compiled while such a function or `code` ran."""
        location = self.graph.location
        if location is not None and location.function in names:
            return True
        return any(
            caller.qualname in names or (code is not None and caller[:2] == (code.co_filename, code.co_firstlineno))
            for caller in self.callers
        )


@contextmanager
def observed() -> Iterator[list[Compiled]]:
    """Collect the graphs that are compiled in a `with` block; turns AOTAutograd's cache off, since a hit traces no graph."""
    compiled: list[Compiled] = []
    with SavedGraphs(lambda graph: compiled.append(Compiled(graph, tuple(_callers())))), without_autograd_cache():
        yield compiled


def _callers() -> Iterator[Caller]:
    """Yield the functions on the stack of this thread, the innermost first."""
    for frame, _ in traceback.walk_stack(sys._getframe(1)):
        code = frame.f_code
        yield Caller(code.co_filename, code.co_firstlineno, code.co_qualname)


def report_of(compiled: Sequence[Compiled], target: Any, name: str, program: str) -> SavedReport:
    """Return a report of the graphs of a function, and of graphs compiled while it was running, as in a training step.

    `target` is the function or module; if it is None, the graphs are found by its `name`, such as `Model.forward`. Errors name
    the `program`. Raises UsageError if no graph of the function saves tensors.
    """
    unwrapped = unwrap(target)
    names = {name} if unwrapped.module is None else {name, f"{type(unwrapped.module).__qualname__}.forward"}
    graphs = tuple(one.graph for one in compiled if one.belongs_to(names, unwrapped.code))
    if not graphs:
        functions = dict.fromkeys(one.graph.location.function for one in compiled if one.graph.location is not None)
        saving = f"graphs that save tensors are those of {', '.join(functions)}" if functions else "no graph saved a tensor"
        raise UsageError(f"{program} compiled no graph of {name} that saves tensors for backward\n  {saving}")
    rules = tuple(dict.fromkeys(rule for graph in graphs for rule in graph.rules))
    return SavedReport(graphs, (), *simulated_peaks(graphs), "simulated", rules)
