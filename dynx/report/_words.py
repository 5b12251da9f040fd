"""Format what the views for terminals and notebooks share: durations, counts, locations."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dynx.advice import expected_breaks
from dynx.records import Finding, Location, RunRecords
from dynx.records.location import short_path
from dynx.report._wrap import ordinary, unbroken

CALM = "nothing to change: no advice applies to this run"
UNCLEAR = "no advice applies to this run; records that no rule covers are listed below"


def is_calm(run: RunRecords) -> bool:
    """Return whether a run needs no attention: it compiled without failure, recompile or unexpected graph break."""
    failed = any(compile.outcome == "failed" for compile in run.compiles)
    is_compiled = any(compile.outcome == "compiled" for compile in run.compiles)
    has_breaks = len(run.graph_breaks) > len(expected_breaks(run))
    return is_compiled and not (failed or run.eager or run.problems or run.recompiles or has_breaks)


def expected(run: RunRecords) -> list[str]:
    """Return the numbers of graph breaks that need no change as texts, by their rule."""
    counts = Counter(found.rule for found in expected_breaks(run))
    return [f"{plural(count, 'graph break')} needs no change: dynx rule {rule}" for rule, count in counts.items()]


def uncompiled(share: float) -> str:
    """Return how much of the time a function ran uncompiled since torch gave it up, from 0 to 1, as text."""
    return f"since then uncompiled for {100 * share:.0f} % of the time"


def seconds(value: float) -> str:
    """Format a duration: `8.1 s`, `120 ms`, `-` for zero."""
    if value >= 0.9995:
        return f"{value:.1f} s"
    return f"{value * 1000:.0f} ms" if value > 0 else "-"


def plural(count: int, singular: str, plural: str | None = None) -> str:
    """Format a count with its noun: `1 graph break`, `2 graph breaks`."""
    return f"{count} {singular if count == 1 else plural or singular + 's'}"


def summary(run: RunRecords) -> list[str]:
    """Return the totals of a run as short texts: seconds compiling, and the counts of compiles, recompiles and graph breaks."""
    if not run.compiles or (not run.graph_breaks and all(compile.outcome == "skipped" for compile in run.compiles)):
        return ["nothing was compiled", *([plural(len(run.graph_breaks), "graph break")] if run.graph_breaks else [])]
    counts = {"compile": run.compiles, "recompile": run.recompiles, "graph break": run.graph_breaks}
    parts = [f"{seconds(run.compile_seconds)} compiling", *(plural(len(records), name) for name, records in counts.items())]
    if run.cudagraphs:
        parts.append(plural(len(run.cudagraphs), "CUDA graph"))
    at_limit = sum(not record.fatal for record in run.gave_up)
    if at_limit:
        parts.append(f"{at_limit} gave up")
    if run.eager:
        parts.append(f"{len(run.eager)} left eager")
    failed = sum(compile.outcome == "failed" for compile in run.compiles)
    if failed:
        parts.append(f"{failed} failed")
    return parts


def command(header: Mapping[str, Any]) -> str:
    """Return the command line from the header of a run; empty if the header has none."""
    words = header.get("command")
    return " ".join(map(str, words)) if isinstance(words, (list, tuple)) else ""


def show(file: Path) -> str:
    """Return the shell command that prints the report of a run file, such as `dynx show last.dynx`."""
    return f"dynx show {shlex.quote(short_path(str(file)))}"


def environment(run: RunRecords) -> list[str]:
    """Return the environment of a run as short texts: rank, torch version, device, duration."""
    parts = [rank(run.header)] if rank(run.header) else []
    if "torch" in run.header:
        parts.append(f"torch {run.header['torch']}")
    if "device" in run.end:
        parts.append(str(run.end["device"]))
    parts.append(seconds(run.seconds) if run.is_complete else "did not finish")
    return parts


def rank(header: Mapping[str, Any]) -> str:
    """Return the rank of a distributed process as `rank 1 of 2, restart 1`; empty for any other process.

    The number of restarts says how often torchrun has restarted the worker group; it is omitted if 0.
    """
    if "rank" not in header:
        return ""
    text = f"rank {header['rank']} of {header.get('world_size', '?')}"
    return f"{text}, restart {header['restart']}" if header.get("restart") else text


def place(location: Location) -> str:
    """Format a location as `model.py:58`; for a location in a library, the line of the user's code that called it, if known.

    The result has no-break spaces, so that text is not wrapped inside it.
    """
    own = location.own
    return unbroken(f"{short_path(own.file)}:{own.line}")


def plain_place(location: Location) -> str:
    """Format a location as `place` does, but with ordinary spaces, for output that is not wrapped."""
    return ordinary(place(location))


def line(location: Location | None) -> str:
    """Format a location as `model.py:58`, or with a short path in a library: `gpt2/modeling_gpt2.py:542`; empty for None."""
    if location is None:
        return ""
    return short_name(location) if location.library is not None else place(location)


def own_and_library(location: Location | None) -> str:
    """Format a location as `line` does; in a library that the user called, as `train.py:12 (in gpt2/model.py:542)`."""
    if location is None or location.library is None or location.caller is None:
        return line(location)
    return f"{place(location)} (in {short_name(location)})"


def where(location: Location) -> str:
    """Format the line of the user's code with its function; for a location in a library, append the library's line."""
    own = location.own
    text = f"{place(location)}  {own.function}"
    return text if own is location else f"{text}  (in {location.library}, {short_name(location)})"


def called_from(finding: Finding) -> str:
    """Format where a finding's function was called: `called from a.py:17`. Empty if unknown, or if it is the finding's line."""
    caller = finding.called_from
    if caller is None or finding.location.library is not None or caller == finding.location:
        return ""
    return f"called from {place(caller)}"


def short_name(location: Location) -> str:
    """Format a location with only the last two parts of its path: `gpt2/modeling_gpt2.py:542`."""
    return unbroken("/".join(location.file.split("/")[-2:]) + f":{location.line}")


def function(location: Location) -> str:
    """Format the name of a function with its file and line: `forward  model.py:58`."""
    return f"{location.function}  {line(location)}"


def size(nbytes: int) -> str:
    """Format a number of bytes: `8.2 kB`, `-` for zero."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= scale:
            return f"{nbytes / scale:.1f} {unit}"
    return f"{nbytes} B" if nbytes else "-"


def code(lines: Iterable[tuple[str, Location | None]]) -> str:
    """Format lines of generated code. A comment such as `# model.py:58` is added where the user's line changes."""
    written, last = [], ""
    for text, location in lines:
        comment = line(location)
        written.append(f"{text}  # {comment}" if comment and comment != last else text)
        last = comment or last
    return "\n".join(written)
