"""Record of a what-if: a fix that was tried while the program ran, by tracing calls of a function again with the fix."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from dynx.records.fix import Fix
from dynx.records.graph_break import GraphBreak
from dynx.records.location import Location
from dynx.records.record import Record

WhatIfOutcome = Literal[
    "removes",  # no recompile, or no graph break, is left
    "fewer",  # recompiles are left, but fewer
    "no effect",
    "raises",
    "leads to another",  # a graph break that the program, or this call, does not have without the fix
    "not proven",  # some call was not traced with the fix
]


@dataclass(frozen=True, slots=True)
class WhatIf(Record):
    """A fix that was tried on calls of a function, without running it: each call was traced again with the fix.

    `calls` counts the calls for which torch compiled the function, `compiles` the compilations that these calls need with the
    fix: a call needs none if the guards of an earlier one accept it. A fix for a graph break is tried on one call.
    """

    generation: int
    frame: str  # frame id: "0" of the compile id "0/1"
    location: Location  # first line of the function
    rule: str
    fix: Fix
    outcome: WhatIfOutcome
    calls: int
    compiles: int
    reason: str = ""  # what was raised, or why nothing is proven
    seconds: float = 0.0  # spent tracing
    graph_break: tuple[str, int, str] | None = None  # the cause of the graph break that the fix is for
    then: GraphBreak | None = None  # the graph break that ends the trace with the fix
    written: str = ""  # the new code, for a fix that rewrites a line: "x = torch.where(x > 0, x, -x)"
    together: tuple[Fix, ...] = ()  # fixes of other causes of the same recompiles, in effect at the same time

    @property
    def code(self) -> str:
        """The fix as text, with the fixes that are in effect at the same time."""
        return ", together with ".join([self.fix.code, *(fix.code for fix in self.together)])

    @property
    def is_proven(self) -> bool:
        """Whether it was found out what the fix does."""
        return self.outcome != "not proven"

    @property
    def helps(self) -> bool:
        """Whether the fix removes the problem, or makes it smaller."""
        return self.outcome in ("removes", "fewer")

    @property
    def result(self) -> str:
        """The result in a few words: `2 compiles, not 9`, `raises ConstraintViolationError`."""
        if self.helps and self.graph_break is None:
            return f"{self.compiles} compile{'s' if self.compiles > 1 else ''}, not {self.calls}"
        if self.outcome == "raises":
            return f"raises {self.reason}"
        if self.outcome == "removes":
            return "no graph break"
        if self.outcome == "leads to another" and self.then is not None:
            return f"leads to another graph break, at {self.then.location}: {self.then.reason}"
        return f"{self.outcome}: {self.reason}" if self.reason else self.outcome


def latest(records: Iterable[WhatIf]) -> tuple[WhatIf, ...]:
    """Keep the last record of each fix for each function: a record is written again whenever a further call was traced."""
    return tuple({_key(record): record for record in records}.values())


def _key(record: WhatIf) -> tuple[object, ...]:
    return record.generation, record.frame, record.rule, record.fix, record.together, record.graph_break
