"""What `dynx.check` returns: where a compiled function did something else than eager code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from dynx.records.graph_break import GraphBreak
from dynx.records.location import Location
from dynx.records.record import Record
from dynx.records.shown import Shown

DiffKind = Literal[
    "value",
    "tensor",  # its elements, sizes, dtype or device
    "class",
    "items",  # of a container, or the names of attributes
    "missing",  # on one side
    "sharing",  # the same object, or memory of tensors
    "exception",
    "output",  # on stdout
    "random",  # the state of a random number generator
    "gradient",
]


@dataclass(frozen=True, slots=True)
class Diff(Record):
    """One thing that differs after a call."""

    path: str  # "result[0]", "args[0].weight", "self.count", "closure.total", "globals.seen", "Model.calls"
    eager: str
    compiled: str
    kind: DiffKind
    call: int = 0  # the first call at which it differs, from 0
    location: Location | None = None  # of the last mutation of the object that Dynamo traced, or of the exception


@dataclass(frozen=True, slots=True)
class CheckReport(Shown):
    """The result of `dynx.check`."""

    name: str  # of the function
    diffs: tuple[Diff, ...]
    calls: int  # that were made, on each side
    compiles: int  # graphs that were compiled
    graph_breaks: tuple[GraphBreak, ...] = ()
    backend: str = "eager"
    location: Location | None = None  # of the function
    shared: Mapping[str, int] = field(default_factory=dict)  # objects that both sides used, as they cannot be copied, by class
    stage: str = ""  # at which a difference begins: "Dynamo", "AOTAutograd", "decompositions and partition", or the backend
    node: str = ""  # the first node of a graph that makes it, with `bisect=True`
    node_location: Location | None = None
    raised: str = ""  # what both sides raised, in the first call that did

    @property
    def is_vacuous(self) -> bool:
        """Whether nothing was compiled and nothing differs: eager code was compared with eager code."""
        return self.compiles == 0 and not self.diffs

    @property
    def ok(self) -> bool:
        """Whether something was compiled and nothing differs."""
        return not self.diffs and not self.is_vacuous

    def assert_ok(self) -> None:
        """Raise `CompiledDiffers` with all differences, also if nothing was compiled."""
        if not self.ok:
            from dynx.errors import CompiledDiffers

            raise CompiledDiffers(self.text)

    @property
    def text(self) -> str:
        """The differences as plain text, one in a line."""
        if self.ok:
            return f"{self.name}: compiled with {self.backend}, {self.calls} calls do the same as eager code"
        if self.is_vacuous:
            reason = f"{self.name}: VACUOUS, nothing was compiled: the calls ran eagerly on both sides"
            if self.raised:
                return f"{reason}, and raised {self.raised}\n  pass arguments with which the function returns"
            return f"{reason}\n  pass arguments with tensors, or look for graph breaks with dynx.watch()"
        where = f"; it begins in {self.stage}" + (f" at {self.node}" if self.node else "") if self.stage else ""
        lines = [f"{self.name}: compiled with {self.backend}, it does something else than eager code{where}"]
        for diff in self.diffs:
            at = f", {diff.location}" if diff.location is not None else ""
            lines.append(f"  {diff.path}: eager {diff.eager}, compiled {diff.compiled} (call {diff.call}{at})")
        if self.shared:
            lines.append(f"  both sides used the same objects of {', '.join(self.shared)}, which cannot be copied")
        return "\n".join(lines)
