"""Render `comptime.post_mortem`, the frames, locals and guards at each graph break, for a terminal and for a notebook."""

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
from dynx.report._wrap import Wrapped

_GUARDS = 6  # number of guards shown: the newest ones, which the code right before the graph break requested


def screen(states: tuple[BreakState, ...]) -> RenderableType:
    """Render the state of the trace at each graph break for a terminal."""
    parts: list[RenderableType] = []
    for number, state in enumerate(states, 1):
        parts += [Text(""), *_state(number, state)] if parts else [*_state(number, state)]
    return Group(*parts) if parts else Text("no graph break and no compile error was seen", style="dim")


def _state(number: int, state: BreakState) -> Iterator[RenderableType]:
    met = f", occurred {state.count} times" if state.count > 1 else ""
    yield Wrapped(Text.assemble((f"post-mortem {number}  ", "bold"), (state.reason, "bold"), (f"  [{state.id}]{met}", "dim")))
    for depth, frame in enumerate(state.frames):
        yield Padding(Group(*_frame(frame, innermost=depth == 0)), (0, 0, 0, 2))
    yield named(
        [
            ("graph", Text(f"{words.plural(_operations(state), 'line')} of code so far")),
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
    """Return the local variables of a frame; for the innermost frame also its value stack, without NULL placeholders."""
    stack = [value for value in frame.stack if value != "<null>"]
    return [*frame.locals.items(), *([("stack", ", ".join(stack))] if innermost and stack else [])]


def _operations(state: BreakState) -> int:
    return max(0, len(state.graph.splitlines()) - 1)


def _guards(state: BreakState) -> Iterator[tuple[str, str]]:
    named = [guard for guard in state.guards if guard.source]
    label = f"{len(state.guards)} guards"
    if not named:
        yield label, ""
    for guard in named[-_GUARDS:]:
        where = f"  asked for at {words.place(guard.location)}" if guard.location is not None else ""
        yield label, f"{guard.kind} {guard.source}{where}"
        label = ""


_PAGE = """
<div class="dynx-pm">
<style>
.dynx-pm { font: 13px/1.45 system-ui, sans-serif; color: inherit }
.dynx-pm pre, .dynx-pm code { font: 12px/1.5 ui-monospace, monospace; background: none; color: inherit; padding: 0 }
.dynx-pm pre { overflow-x: auto } .dynx-pm .dim { opacity: .6 }
.dynx-pm .here { font-weight: 700 } .dynx-pm .here u { text-decoration: underline wavy #e5484d }
.dynx-pm .frame { margin: .4em 0 .4em 1em; padding-left: .8em; border-left: 2px solid #8884 }
.dynx-pm.dynx-pm table { font-size: 12px }
{{ styles }}
.dynx-pm.dynx-pm.dynx-pm td { padding: .1em .9em .1em 0; border: 0 }
.dynx-pm summary { cursor: pointer } .dynx-pm .do { color: #18794e }
@media (prefers-color-scheme: dark) { .dynx-pm .do { color: #4cc38a } }
body[data-jp-theme-light="false"] .dynx-pm .do, .vscode-dark .dynx-pm .do { color: #4cc38a }
</style>
{% for state in states %}
<details id="{{ anchor }}{{ loop.index }}" {{ "open" if loop.first }}>
<summary><b>post-mortem {{ loop.index }}</b> {{ state.reason }}
<span class="dim">[{{ state.id }}]{% if state.count > 1 %} occurred {{ state.count }} times{% endif %}</span></summary>
{% for frame in state.frames %}
<div class="frame"><div>{{ "" if loop.first else "called from " }}<code>{{ where(frame.location) }}</code>
<span class="dim">at {{ frame.instruction }}</span></div>
<pre>{% for number, before, marked, after, here in lines(frame, innermost=loop.first) -%}
<span class="{{ "here" if here else "dim" }}">{{ "%5d" | format(number) }}  {{ before }}<u>{{ marked }}</u>{{ after }}
</span>{% endfor %}</pre>
<table>{% for name, value in values(frame, innermost=loop.first) %}
<tr><td class="dim">{{ name }}</td><td><code>{{ value }}</code></td></tr>{% endfor %}</table></div>
{% endfor %}
{% for hint in state.hints %}<div class="frame do">{{ hint }}</div>{% endfor %}
<details class="frame"><summary>graph so far</summary><pre>{{ state.graph }}</pre></details>
<details class="frame"><summary>{{ state.guards | length }} guards</summary><table>
{% for guard in state.guards %}<tr><td>{{ guard.kind }}</td><td><code>{{ guard.source }}</code></td>
<td class="dim">{{ where(guard.location) if guard.location else "ambient" }}</td></tr>{% endfor %}</table></details>
</details>
{% else %}<div class="dim">no graph break and no compile error was seen</div>{% endfor %}
</div>
"""


def fragment(states: tuple[BreakState, ...], anchor: str = "dynx-pm-") -> str:
    """Render the state of the trace at each graph break as HTML; all text of the program is escaped.

    The element id of a state is `anchor` followed by its number, from 1.
    """
    return styles.template(_PAGE).render(
        states=states,
        anchor=anchor,
        where=words.where,
        lines=_lines,
        values=_values,
        styles=styles.of_tables("dynx-pm"),
    )


def _lines(frame: FrameState, *, innermost: bool) -> list[tuple[int, str, str, str, bool]]:
    """Return the source lines to show: number, text before, in and after the traced instruction, whether it is in the line."""
    lines = []
    for number, text in enumerate(frame.source, frame.first_line):
        here = number == frame.location.line
        if innermost or here:
            lines.append((number, *(parts(text, frame) if here else (text, "", "")), here))
    return lines
