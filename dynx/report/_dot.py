"""Graphs that are captured, in the language of Graphviz."""

from __future__ import annotations

from collections.abc import Iterator

from dynx.records.cudagraphs import CudagraphReport, GraphUse
from dynx.report import _words as words

_COLOURS = {
    "static": "#d8e8d0",
    "managed": "#d0e0f0",
    "dynamic": "#f6e3b4",
    "scalar": "#e8e8e8",
    "opaque": "#f2c9c4",
    "untouched": "#ffffff",
}


def document(report: CudagraphReport) -> str:
    """Each graph is a cluster: inputs by class, pieces in the order in which they run, dashed where they are not captured."""
    lines = [
        "digraph cudagraphs {",
        "  rankdir=LR;",
        '  node [shape=box, style=filled, fillcolor=white, fontname="sans-serif"];',
    ]
    for number, use in enumerate(report.graphs):
        lines += [f"  subgraph cluster_{number} {{", f"    label={_quoted(f'{use.plan.part} graph')};"]
        lines += [f"    {line}" for line in _graph(number, use)]
        lines.append("  }")
    return "\n".join([*lines, "}"]) + "\n"


def _graph(number: int, use: GraphUse) -> Iterator[str]:
    made_by = {}
    for index, each in enumerate(use.plan.inputs):
        made_by[each.node or each.name] = name = f"input_{number}_{index}"
        label = "\n".join([each.name, each.kind, *([words.size(each.nbytes)] if each.nbytes else [])])
        yield f'{name} [label={_quoted(label)}, shape=ellipse, fillcolor="{_COLOURS[each.kind]}"];'
    if not use.plan.pieces:
        text = f"{words.plural(use.recordings, 'recording')}" if use.recordings else "runs uncaptured"
        yield _piece(f"piece_{number}_0", text, is_captured=bool(use.recordings))
        yield from (f"{name} -> piece_{number}_0;" for name in made_by.values())
    for index, piece in enumerate(use.plan.pieces):
        name = f"piece_{number}_{index}"
        text = piece.why_uncaptured or words.plural(piece.launches, "launch", "launches")
        yield _piece(name, f"piece {index + 1}\n{text}", is_captured=not piece.why_uncaptured)
        yield from (f"{each} -> {name};" for each in dict.fromkeys(made_by[each] for each in piece.inputs if each in made_by))
        made_by |= dict.fromkeys(piece.outputs, name)


def _piece(name: str, text: str, *, is_captured: bool) -> str:
    return f"{name} [label={_quoted(text)}{'' if is_captured else ', style=dashed'}];"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
