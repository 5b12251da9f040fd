"""Where a graph ended before the function did."""

from __future__ import annotations

from dataclasses import dataclass

from dynx.records.location import Location
from dynx.records.record import Record


@dataclass(frozen=True, slots=True)
class GraphBreak(Record):
    """One cause of a graph break.

    Meeting the same cause again (in a caller, after a restart, in a recompile) adds to `count`. `chain` is the call stack from
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
    block: str | None = None  # of a break that is not resumable: the statement around it, "try", "with", "for" or "while"
    compiles: tuple[tuple[int, str], ...] = ()  # (generation, compile id) of the compilations that met it

    @property
    def cause(self) -> tuple[str, int, str]:
        """The key of the break: two breaks with equal causes are merged."""
        return self.location.file, self.location.line, self.kind or self.reason
