"""Records of changes of a program that may remove the cause of a finding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dynx.records.location import Location
from dynx.records.record import Record

FixKind = Literal[
    "statement",  # runs before the program: `torch._dynamo.config.capture_scalar_outputs = True`
    "stance",  # a statement too, after which the first call of each compiled function runs eagerly
    "option",  # an argument of torch.compile: `dynamic=True`
    "mark",  # `mark_dynamic(x, 1)` before the call of a compiled function
    "rewrite",  # of the line of the finding: "torch.where instead of if"
]


@dataclass(frozen=True, slots=True)
class Mark(Record):
    """One dimension of an argument that is marked as dynamic."""

    source: str  # of the tensor, in Dynamo's words: "L['x']"
    dim: int


@dataclass(frozen=True, slots=True)
class Fix(Record):
    """A change of the program that may remove the cause of a finding, exact enough to be tried."""

    kind: FixKind
    code: str
    location: Location | None = None  # of a mark: the compiled function; of a rewrite: the line
    called_from: Location | None = None  # the line of the call, of a fix that changes it
    marks: tuple[Mark, ...] = ()
