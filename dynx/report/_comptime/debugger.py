"""Render the output of `comptime.debug`, the debugger that steps through a trace of Dynamo."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.text import Text

from dynx.records import FrameState, TracedGuard, TraceState
from dynx.report import _words as words
from dynx.report._comptime.frame import marked, text_of
from dynx.report._grid import Column, Grid, named
from dynx.report._wrap import ordinary


def stop(state: TraceState, level: int, why: str, ago: int, *, exact: bool) -> RenderableType:
    """Render the line at which the debugger stopped: location, node and guard counts, source.

    `level` is the index of the selected frame, 0 the innermost. `why` is the reason if the instruction breaks the graph, else
    empty. `ago` is how many instructions Dynamo has traced since `state`. `exact` underlines the instruction in the line.
    """
    frame = state.frames[level]
    attempt = f" attempt {state.attempt}" if state.attempt else ""
    facts = [f"[{state.id}{attempt}]", words.plural(state.nodes, "node"), words.plural(state.guards, "guard")]
    if exact:
        facts.append(f"at {frame.instruction.strip()}")
    if state.exception:
        facts.append(state.exception)
    head = Text.assemble((f"{_line(frame)}  {frame.location.function}", "cyan"), (f"  {'  '.join(facts)}", "dim"))
    if ago:
        head.append(f"  {words.plural(ago, 'instruction')} back", style="yellow")
    text = text_of(frame)
    line = marked(text, frame) if exact else Text(text or f"(no source) {frame.instruction}")
    reason = [Text(f"graph break: {why}", style="bold red")] if why else []
    return Group(*reason, head, Text.assemble(("-> ", "bold"), line[len(text) - len(text.lstrip()) :]))


def over(why: str, compiles: int, instructions: int) -> RenderableType:
    """Render a message at the end of the trace: `why` it ended, how much was traced, and the commands that still work."""
    return Text(
        f"{why}: {words.plural(instructions, 'instruction')} in {words.plural(compiles, 'compilation')}; "
        "back and rs go back through it, c leaves the debugger",
        style="bold",
    )


def nothing_traced(*, only_internals: bool) -> RenderableType:
    """Render why the debugger never stopped: only code of torch and Python was traced (`only_internals`), or nothing."""
    if only_internals:
        return Text("only code of torch and the standard library was traced\n  debug(..., internals=True) shows it")
    return Text(
        "nothing was traced: a cache entry matches these arguments, or Dynamo skips this function\n"
        "  call torch._dynamo.reset() first, or run `dynx doctor`"
    )


def end_of_history(*, backwards: bool) -> RenderableType:
    """Render the message that there is no earlier (`backwards`) or no later traced instruction to go to."""
    return Text("this is where the trace began" if backwards else "this is the newest traced instruction", style="dim")


def table(rows: Iterable[tuple[str, str]]) -> RenderableType | None:
    """Render names and their values as a table; return None if there are no rows."""
    grid = named((name, Text(value)) for name, value in rows)
    return grid if grid.rows else None


def guards(guards: list[TracedGuard]) -> RenderableType:
    """Render guards: kind, source, and the line of code that requested the guard, or "ambient" if no line did."""
    if not guards:
        return Text("no guards yet", style="dim")
    places = [words.place(guard.location) if guard.location is not None else "ambient" for guard in guards]
    rows = [(Text(guard.kind, "dim"), Text(guard.source), Text(at, "dim")) for guard, at in zip(guards, places, strict=True)]
    return Grid((Column(kind="whole"), Column(), Column()), rows)


def frames(state: TraceState, level: int) -> RenderableType:
    """Render the stack of frames that Dynamo is tracing, outermost first; an arrow marks frame `level` (0: the innermost)."""
    lines = []
    for number, frame in reversed(list(enumerate(state.frames))):
        arrow = "-> " if number == level else "   "
        place = f"{_line(frame)}  {frame.location.function}"
        lines.append(Text.assemble((arrow, "bold"), (place, "cyan"), f"  {text_of(frame).strip()}"))
    return Group(*lines)


def _line(frame: FrameState) -> str:
    return ordinary(words.line(frame.location))  # the terminal wraps it
