"""Texts that the views share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dynx.records import Location, Run
from dynx.records.location import short_path

CALM = "nothing to change: no advice applies to this run"
UNCLEAR = "no advice applies to this run: what no rule covers stands below"


def is_calm(run: Run) -> bool:
    """Return whether nothing needs attention: something was compiled, nothing failed, and the file is whole."""
    failed = any(compile.outcome == "failed" for compile in run.compiles)
    return bool(run.compiles) and not (failed or run.eager or run.problems or run.recompiles or run.graph_breaks)


def seconds(value: float) -> str:
    """Write a duration with two or three digits: `8.1 s`, `120 ms`, `-` for zero."""
    if value >= 0.9995:
        return f"{value:.1f} s"
    return f"{value * 1000:.0f} ms" if value > 0 else "-"


def plural(count: int, singular: str, plural: str | None = None) -> str:
    """Write a number with its noun: `1 graph break`, `2 graph breaks`."""
    return f"{count} {singular if count == 1 else plural or singular + 's'}"


def summary(run: Run) -> list[str]:
    """Return the seconds and the counts of a run, each as a short text."""
    if not run.compiles:
        return ["nothing was compiled", *([plural(len(run.graph_breaks), "graph break")] if run.graph_breaks else [])]
    parts = [f"{seconds(run.compile_seconds)} compiling", plural(len(run.compiles), "compile")]
    parts.append(plural(len(run.recompiles), "recompile"))
    parts.append(plural(len(run.graph_breaks), "graph break"))
    if run.cudagraphs:
        parts.append(plural(len(run.cudagraphs), "CUDA graph"))
    if run.gave_up:
        parts.append(f"{len(run.gave_up)} gave up")
    if run.eager:
        parts.append(f"{len(run.eager)} left eager")
    failed = sum(compile.outcome == "failed" for compile in run.compiles)
    if failed:
        parts.append(f"{failed} failed")
    return parts


def command(header: Mapping[str, Any]) -> str:
    """Return the command line of a run; empty where the header has none."""
    words = header.get("command")
    return " ".join(map(str, words)) if isinstance(words, (list, tuple)) else ""


def environment(run: Run) -> list[str]:
    """Say what ran where."""
    parts = [rank(run.header)] if rank(run.header) else []
    if "torch" in run.header:
        parts.append(f"torch {run.header['torch']}")
    if "device" in run.end:
        parts.append(str(run.end["device"]))
    parts.append(seconds(run.seconds) if run.is_complete else "did not finish")
    return parts


def rank(header: Mapping[str, Any]) -> str:
    """Return `rank 1 of 2`, with the restart of the worker group; empty for a process that is no rank."""
    if "rank" not in header:
        return ""
    text = f"rank {header['rank']} of {header.get('world_size', '?')}"
    return f"{text}, restart {header['restart']}" if header.get("restart") else text


def place(location: Location) -> str:
    """Write a location as `model.py:58`: the user's own line where the location is in a library and the caller is known."""
    own = location.own
    return f"{short_path(own.file)}:{own.line}"


def line(location: Location) -> str:
    """Write the location itself, also in a library, whose path is shortened."""
    return short_name(location) if location.library is not None else place(location)


def where(location: Location) -> str:
    """Write the user's own line with its function, and the library line that it called."""
    own = location.own
    text = f"{place(location)}  {own.function}"
    return text if own is location else f"{text}  (in {location.library}, {short_name(location)})"


def short_name(location: Location) -> str:
    """Write the last two parts of a library's path, enough to find it: `gpt2/modeling_gpt2.py:542`."""
    return "/".join(location.file.split("/")[-2:]) + f":{location.line}"


def function(location: Location) -> str:
    """Write a function with its location."""
    return (
        f"{location.function}  {place(location)}"
        if location.library is None
        else f"{location.function}  {short_name(location)}"
    )


def size(nbytes: int) -> str:
    """Write a number of bytes with its unit: `8.2 kB`, `-` for zero."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= scale:
            return f"{nbytes / scale:.1f} {unit}"
    return f"{nbytes} B" if nbytes else "-"


def code(lines: Iterable[tuple[str, Location | None]]) -> str:
    """Write lines of generated code, with the user's line as a comment where it is another than that of the line before."""
    written, last = [], ""
    for text, location in lines:
        comment = line(location) if location is not None else ""
        written.append(f"{text}  # {comment}" if comment and comment != last else text)
        last = comment or last
    return "\n".join(written)
