"""The words both views share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dynx.records import Location, Run
from dynx.records.location import short_path

CALM = "nothing to change: no advice applies to this run"
UNCLEAR = "no advice applies to this run: what no rule covers stands below"


def is_calm(run: Run) -> bool:
    """Tell whether all is well: something was compiled, nothing failed, and the file is whole."""
    failed = any(each.outcome == "failed" for each in run.compiles)
    return bool(run.compiles) and not (failed or run.eager or run.problems or run.recompiles or run.graph_breaks)


def seconds(value: float) -> str:
    """Give a duration a person compares at a glance: `8.1 s`, `120 ms`, `-` for nothing."""
    if value >= 0.9995:
        return f"{value:.1f} s"
    return f"{value * 1000:.0f} ms" if value > 0 else "-"


def plural(count: int, one: str, many: str | None = None) -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"


def summary(run: Run) -> list[str]:
    """Say in a few words what the run cost."""
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
    words = header.get("command")
    return " ".join(map(str, words)) if isinstance(words, (list, tuple)) else ""


def environment(run: Run) -> list[str]:
    """Say what ran where."""
    parts = [f"torch {run.header['torch']}"] if "torch" in run.header else []
    if "device" in run.end:
        parts.append(str(run.end["device"]))
    parts.append(seconds(run.seconds) if run.is_complete else "did not finish")
    return parts


def place(location: Location) -> str:
    """Give `model.py:58`: the user's own line where there is one."""
    own = location.own
    return f"{short_path(own.file)}:{own.line}"


def line(location: Location) -> str:
    """Give the place of the line itself, a library's by the end of its path."""
    return short_name(location) if location.library is not None else place(location)


def where(location: Location) -> str:
    """Give the place with its function, and the library line that it stands for."""
    own = location.own
    text = f"{place(location)}  {own.function}"
    return text if own is location else f"{text}  (in {location.library}, {short_name(location)})"


def short_name(location: Location) -> str:
    """Give the last two parts of a library's path, enough to find it: `gpt2/modeling_gpt2.py:542`."""
    return "/".join(location.file.split("/")[-2:]) + f":{location.line}"


def function(location: Location) -> str:
    return (
        f"{location.function}  {place(location)}"
        if location.library is None
        else f"{location.function}  {short_name(location)}"
    )


def size(nbytes: int) -> str:
    """Give bytes a person compares at a glance: `8.2 kB`, `-` for none."""
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
