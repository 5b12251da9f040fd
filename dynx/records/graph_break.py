"""Record of a graph break: where and why Dynamo ended a graph before the function returned."""

from __future__ import annotations

from dataclasses import dataclass

from dynx.records.location import Location
from dynx.records.record import Record


@dataclass(frozen=True, slots=True)
class GraphBreak(Record):
    """A graph break at one line for one reason; `count` says how often Dynamo met this graph break.

    The same graph break is met again when Dynamo traces a caller, restarts or recompiles. `chain` is the call stack from
    the compiled function to the innermost line. `resumable` is False where Dynamo cannot write a resume function (inside `try`,
    in a loop): the whole function then runs eagerly.
    """

    location: Location
    chain: tuple[Location, ...]
    reason: str  # torch's own headline
    rule: str | None = None
    count: int = 1
    kind: str = ""  # torch's gb_type
    explanation: str = ""
    hints: tuple[str, ...] = ()
    callee: str | None = None  # what was called: "print", "Tensor.item", "math.factorial"
    resumable: bool = True
    fatal: bool = False  # under fullgraph: the compilation failed with it
    code: str = ""  # the source line at `location.own`
    code_of_library: str = ""  # the source line at `location`, if that is in a library
    uses: tuple[str, ...] = ()  # source lines that use the variable which the line assigns
    block: str | None = None  # of a break that is not resumable: the statement around it, "try", "with", "for" or "while"
    compiled_autograd: bool = False  # whether torch._dynamo.config.compiled_autograd was on
    captures_backward: bool = False  # whether compiled autograd was enabled, by this setting or otherwise
    page: str = ""  # torch's page on this kind of graph break: "https://…/gb0059.html"
    compiles: tuple[tuple[int, str], ...] = ()  # (generation, compile id) of the compilations that met it

    @property
    def cause(self) -> tuple[str, int, str]:
        """File, line and kind of the graph break; records with equal causes are merged."""
        return self.location.file, self.location.line, self.kind or self.reason
