"""Render post-mortems for terminals and notebooks: the frames, locals and guards that Dynamo had at each graph break."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from dynx.records import BreakState, FrameState
from dynx.report import _styles as styles
from dynx.report import _words as words
from dynx.report._comptime.frame import line, parts, source
from dynx.report._grid import named
from dynx.report._trimmed import Trimmed
from dynx.report._wrap import Wrapped

_GUARDS = 6  # number of guards shown: the newest ones, which the code right before the graph break requested


def screen(states: tuple[BreakState, ...]) -> RenderableType:
    """Render for a terminal the frames, locals and guards that Dynamo had at each graph break, with source lines."""
    parts = [part for number, state in enumerate(states, 1) for part in (Text(""), *_state(number, state))]
    return Trimmed(Group(*parts[1:]) if parts else Text("no graph break and no compile error was seen", style="dim"))


def _state(number: int, state: BreakState) -> Iterator[RenderableType]:
    met = f", occurred {state.count} times" if state.count > 1 else ""
    yield Wrapped(Text.assemble((f"post-mortem {number}  ", "bold"), (state.reason, "bold"), (f"  [{state.id}]{met}", "dim")))
    for depth, frame in enumerate(state.frames):
        yield Padding(Group(*_frame(frame, innermost=depth == 0)), (0, 0, 0, 2))
    operations = max(0, len(state.graph.splitlines()) - 1)
    yield named(
        [
            ("graph", Text(f"{words.plural(operations, 'line')} of code so far")),
            *((label, Text(text)) for label, text in _guards(state)),
            *(("torch", Text(hint, style="green")) for hint in state.hints),
        ],
        indent=2,
    )


def _frame(frame: FrameState, *, innermost: bool) -> Iterator[RenderableType]:
    place = f"{words.place(frame.location)}  {frame.location.function}"
    yield Wrapped(Text.assemble("" if innermost else "called from  ", (place, "cyan"), (f"  at {frame.instruction}", "dim")))
    yield source(frame) if innermost else line(frame)
    yield named([(name, Text(value)) for name, value in _values(frame, innermost=innermost)], indent=2)


def _values(frame: FrameState, *, innermost: bool) -> list[tuple[str, str]]:
    """Return the names and values of a frame's locals, and for the innermost frame also the value stack without NULL items."""
    stack = [value for value in frame.stack if value != "<null>"]
    return [*frame.locals.items(), *([("stack", ", ".join(stack))] if innermost and stack else [])]


def _guards(state: BreakState) -> Iterator[tuple[str, str]]:
    named = [guard for guard in state.guards if guard.source]
    label = f"{len(state.guards)} guards"
    if not named:
        yield label, ""
    for guard in named[-_GUARDS:]:
        where = f"  asked for at {words.place(guard.location)}" if guard.location is not None else ""
        yield label, f"{guard.kind} {guard.source}{where}"
        label = ""


def fragment(states: tuple[BreakState, ...], anchor: str = "dynx-pm-") -> str:
    """Render the state of the trace at each graph break as HTML; all text of the program is escaped.

    The id of the HTML element of each state is `anchor` followed by the number of the state, from 1.
    """
    return styles.page("post_mortem.html", states=states, anchor=anchor, where=words.where, lines=_lines, values=_values)


def _lines(frame: FrameState, *, innermost: bool) -> list[tuple[int, str, str, str, bool]]:
    """Return the source lines to show for a frame: all recorded lines if `innermost`, else only the traced instruction's line.

    Each line is a tuple: its number, the text before, in and after the instruction, and whether it has the instruction.
    """
    lines = []
    for number, text in enumerate(frame.source, frame.first_line):
        here = number == frame.location.line
        if innermost or here:
            lines.append((number, *(parts(text, frame) if here else (text, "", "")), here))
    return lines
