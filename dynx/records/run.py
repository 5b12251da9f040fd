"""Everything that was seen while a program ran."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from dynx.records import merge
from dynx.records.codec import to_data
from dynx.records.compile import Backward, Compile, GaveUp, Skipped
from dynx.records.comptime import Logged
from dynx.records.cudagraphs import AddressChange, GraphRecorded, Skip
from dynx.records.graph_break import GraphBreak
from dynx.records.observed import BecameDynamic, CacheEvent, TorchWarning, Trouble
from dynx.records.post_mortem import BreakState
from dynx.records.recompile import Reason, Recompile
from dynx.records.record import Record
from dynx.records.timeline import LineCost, TracedCompile

if TYPE_CHECKING:
    from dynx.records.finding import Finding

T = TypeVar("T", bound=Record)


@dataclass(frozen=True)
class Run:
    """What torch.compile did during one `dynx.watch()` or `dynx run`.

    A run is made of `events`, in the order they were committed; the properties group and merge them. `header` says what ran
    where (torch, Python, device, command), `end` how it ended; `end` is empty when the process was killed. `problems` are the
    places where a run file could not be read. Findings are computed from the events, so an old file profits from new rules.

    >>> import dynx
    >>> with dynx.watch() as w:
    ...     pass
    >>> w.run.findings
    ()
    """

    events: tuple[Record, ...] = ()
    header: Mapping[str, Any] = field(default_factory=dict)
    end: Mapping[str, Any] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    unknown: tuple[Mapping[str, Any], ...] = ()  # lines of a newer dynx, kept as they are

    @property
    def compiles(self) -> tuple[Compile, ...]:
        return self._of(Compile)

    @property
    def backwards(self) -> tuple[Backward, ...]:
        """Backward graphs that were compiled later than their forward."""
        return self._of(Backward)

    @property
    def recompiles(self) -> tuple[Recompile, ...]:
        """Every recompile, each reason with the rule that applies."""
        from dynx.advice import rule_of_reason

        def ruled(reason: Reason) -> Reason:
            return replace(reason, rule=rule_of_reason(reason))

        return tuple(replace(each, reasons=tuple(map(ruled, each.reasons))) for each in self._of(Recompile))

    @property
    def graph_breaks(self) -> tuple[GraphBreak, ...]:
        """Every cause of a graph break once, with its count and the rule that applies."""
        from dynx.advice import rule_of_break

        return tuple(replace(each, rule=rule_of_break(each)) for each in merge.graph_breaks(self._of(GraphBreak)))

    @property
    def gave_up(self) -> tuple[GaveUp, ...]:
        return merge.gave_up(self._of(GaveUp))

    @property
    def eager(self) -> tuple[Compile, ...]:
        """Compiles that came to nothing because of a graph break: those functions run eagerly as a whole."""
        broken = {key for each in self._of(GraphBreak) if not each.resumable for key in each.compiles}
        return tuple(each for each in self.compiles if each.outcome == "skipped" and each.key in broken)

    @property
    def skipped(self) -> tuple[Skipped, ...]:
        return merge.skipped(self._of(Skipped))

    @property
    def caches(self) -> tuple[CacheEvent, ...]:
        return merge.caches(self._of(CacheEvent))

    @property
    def cudagraph_skips(self) -> tuple[Skip, ...]:
        """What `dynx.cudagraphs` runs uncaptured, and why."""
        return merge.cudagraph_skips(self._of(Skip))

    @property
    def cudagraphs(self) -> tuple[GraphRecorded, ...]:
        """What `dynx.cudagraphs` captured."""
        return self._of(GraphRecorded)

    @property
    def moves(self) -> tuple[AddressChange, ...]:
        """What `dynx.cudagraphs` reads where it lies, and found somewhere else than before."""
        return self._of(AddressChange)

    @property
    def dynamic(self) -> tuple[BecameDynamic, ...]:
        return self._of(BecameDynamic)

    @property
    def warnings(self) -> tuple[TorchWarning, ...]:
        return merge.warnings(self._of(TorchWarning))

    @property
    def logs(self) -> tuple[Logged, ...]:
        """What callbacks logged at compile time (`dynx.comptime`), once per logical hit."""
        return self._of(Logged)

    @property
    def post_mortem(self) -> tuple[BreakState, ...]:
        """The state of the trace at each cause of a break, where somebody asked for it (`dynx.comptime.post_mortem`)."""
        return merge.break_states(self._of(BreakState))

    @property
    def traced(self) -> tuple[TracedCompile, ...]:
        """What tracing each compilation cost, where `watch(detail="full")` measured it."""
        return self._of(TracedCompile)

    @property
    def timeline(self) -> tuple[LineCost, ...]:
        """What each line cost while it was traced, most expensive first, where `watch(detail="full")` measured it."""
        return merge.lines(self._of(LineCost))

    @property
    def troubles(self) -> tuple[Trouble, ...]:
        return merge.troubles(self._of(Trouble))

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The advice that applies, most expensive first."""
        from dynx.advice import advise

        return advise(self)

    @property
    def seconds(self) -> float:
        """Wall time of the whole run in seconds; 0.0 when the process was killed."""
        seconds = self.end.get("seconds", 0.0)
        return seconds if isinstance(seconds, float) and math.isfinite(seconds) else 0.0

    @property
    def compile_seconds(self) -> float:
        """Wall time spent compiling, in seconds."""
        return sum(each.seconds for each in self.compiles) + sum(each.seconds for each in self.backwards)

    @property
    def is_complete(self) -> bool:
        return bool(self.end)

    def save(self, path: str | Path) -> None:
        """Write the run as JSON lines. Raises OSError when the file cannot be written."""
        from dynx.records.runfile import write

        write(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> Run:
        """Read a run file; works without torch.

        A damaged or truncated file gives a `DynxWarning` with the line number and everything that is whole. Raises
        `dynx.errors.BadRunFile` when the file is no run file at all, OSError when it cannot be read.
        """
        from dynx.records.runfile import read

        return read(Path(path))

    def to_json(self) -> str:
        """Give the run, with its findings, as one JSON document."""
        groups: dict[str, Sequence[Record]] = {
            "findings": self.findings,
            "compiles": self.compiles,
            "backwards": self.backwards,
            "recompiles": self.recompiles,
            "graph_breaks": self.graph_breaks,
            "gave_up": self.gave_up,
            "skipped": self.skipped,
            "caches": self.caches,
            "cudagraph_skips": self.cudagraph_skips,
            "cudagraphs": self.cudagraphs,
            "moves": self.moves,
            "dynamic": self.dynamic,
            "warnings": self.warnings,
            "logs": self.logs,
            "post_mortem": self.post_mortem,
            "traced": self.traced,
            "timeline": self.timeline,
            "troubles": self.troubles,
        }
        lists = {name: [to_data(record) for record in records] for name, records in groups.items()}
        return json.dumps({"header": dict(self.header), "end": dict(self.end), **lists}, indent=1)

    def to_perfetto(self) -> str:
        """Give the run along time, as JSON for Perfetto (ui.perfetto.dev): compilations, recordings of CUDA graphs, skips."""
        from dynx.report import perfetto

        return perfetto(self)

    def _of(self, cls: type[T]) -> tuple[T, ...]:
        return tuple(event for event in self.events if type(event) is cls)

    def __repr__(self) -> str:
        return (
            f"<Run: {len(self.compiles)} compiles, {len(self.recompiles)} recompiles, {len(self.graph_breaks)} graph breaks, "
            f"{len(self.gave_up)} gave up, {len(self.findings)} findings>"
        )

    def __rich__(self) -> Any:
        from dynx.report import terminal

        return terminal(self)

    def _repr_html_(self) -> str:
        from dynx.report import html

        return html(self)
