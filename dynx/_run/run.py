"""`Run`: all records of a program's compilations, and results computed from them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from dynx._run.diff import compare
from dynx._runfile.contents import RunFile, write
from dynx._runfile.reader import read
from dynx.advice import advise, rule_of_break, rule_of_reason
from dynx.records import Finding, Recompile, Record, RunDiff, RunRecords
from dynx.records.codec import to_data
from dynx.records.kind import kinds_of


def _with_rules(recompile: Recompile) -> Recompile:
    return replace(recompile, reasons=tuple(replace(reason, rule=rule_of_reason(reason)) for reason in recompile.reasons))


class RunMembers(RunRecords):
    """The base class of `Run` and `Watch`: the records by kind, and results computed from them, such as `findings`."""

    recompiles = RunRecords.recompiles.followed_by(_with_rules)
    graph_breaks = RunRecords.graph_breaks.followed_by(lambda record: replace(record, rule=rule_of_break(record)))

    def _frozen(self) -> Run:
        """Return the records so far as an immutable `Run`; an open `Watch` may receive more records."""
        raise NotImplementedError

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The advice that applies to this run: on wrong results first, then the rest, each by lost compile time, most first."""
        return advise(self._frozen())

    def save(self, path: str | Path) -> None:
        """Write the run as JSON lines. Raises OSError when the file cannot be written."""
        run = self._frozen()
        write(RunFile(run.events, run.header, run.end, (), run.unknown), Path(path))

    def to_json(self) -> str:
        """Return the run, with its findings, as one JSON document."""
        run = self._frozen()
        groups: dict[str, Sequence[Record]] = {"findings": run.findings}
        groups |= {kind.group: getattr(run, kind.group) for kind in kinds_of(type(run))}
        lists = {name: [to_data(record) for record in records] for name, records in groups.items()}
        return json.dumps({"header": dict(run.header), "end": dict(run.end), **lists}, indent=1)

    def diff(self, other: RunMembers) -> RunDiff:
        """Return what got better or worse in a later run: recompiles, graph breaks and other costs by cause, and totals.

        A cause is matched by its text and its function or source line, not by its line number, so that a run can be compared
        with one after an edit of the program.

        Args:
            other: The later run.

        Example:
            >>> import dynx, torch
            >>> with dynx.watch() as before, dynx.watch() as after:
            ...     pass
            >>> before.diff(after).worse
            ()
        """
        return compare(self._frozen(), other._frozen())

    def to_perfetto(self) -> str:
        """Return a timeline of compilations and CUDA graph captures as JSON text, for Perfetto (ui.perfetto.dev)."""
        from dynx.report import perfetto

        return perfetto(self._frozen())

    def __rich__(self) -> Any:
        from dynx.report import terminal

        return terminal(self._frozen())

    def _repr_html_(self) -> str:
        from dynx.report import html

        return html(self._frozen())


@dataclass(frozen=True)
class Run(RunMembers):
    """What torch.compile did during one `dynx.watch()` or `dynx run`.

    `events` are all records in the order in which they were emitted; the records of one kind (`run.compiles`,
    `run.graph_breaks`, …) are selected from them. `header` describes the program (versions of torch and Python, command), `end`
    how and on which device the run ended; `end` is empty if the process was killed. `problems` lists the lines of a run file
    that could not be read. `findings` are computed on access, so an old run file gets the advice of the installed dynx.

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
    unknown: Sequence[Mapping[str, Any]] = ()  # lines of a newer dynx, kept so that saving loses nothing

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a run file; works without torch.

        For a damaged or truncated file, issue a `DynxWarning` with the line number, and return a run of the readable lines.
        Raises `dynx.errors.BadRunFile` if the file is not a run file, OSError if it cannot be read.
        """
        return cls(*read(Path(path)))

    def _frozen(self) -> Self:
        return self

    def __repr__(self) -> str:
        return (
            f"<Run: {len(self.compiles)} compiles, {len(self.recompiles)} recompiles, {len(self.graph_breaks)} graph breaks, "
            f"{len(self.gave_up)} gave up, {len(self.findings)} findings>"
        )
