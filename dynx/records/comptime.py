"""Records of what comptime callbacks (functions that run while Dynamo traces) logged, and of the guards of a trace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from dynx.records.location import Location, short_path
from dynx.records.record import Record


@dataclass(frozen=True, slots=True)
class Logged(Record):
    """The values of one `ctx.log(...)` in a comptime callback; one record, even if Dynamo traced the line in several attempts.

    `outcome` is the outcome of the last attempt: "skipped" and "failed" attempts led to no compiled code.
    """

    id: str  # compile id, "0/1"
    location: Location | None
    values: Mapping[str, str]
    outcome: Literal["committed", "skipped", "failed"] = "committed"

    def __str__(self) -> str:
        values = " ".join(f"{name}={value}" for name, value in self.values.items())
        where = f"{short_path(self.location.file)}:{self.location.line} {self.location.function}" if self.location else "?"
        return f"{where} [{self.id}] {values}"


@dataclass(frozen=True, slots=True)
class TracedGuard(Record):
    """A guard that Dynamo has requested so far in a trace, with the line that requested it first."""

    kind: str  # torch's name, "TENSOR_MATCH"
    source: str  # "L['x']"; empty for guards on global state
    location: Location | None
