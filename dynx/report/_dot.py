"""Render the graphs of a `cudagraphs.explain` report in the Graphviz language."""

from __future__ import annotations

from collections.abc import Iterator

from dynx.records.cudagraphs import CudagraphReport, GraphUse
from dynx.report import _words as words

_COLOURS = {
    "static": "#d8e8d0",
    "managed": "#d0e0f0",
    "dynamic": "#f6e3b4",
    "scalar": "#e8e8e8",
    "generator": "#e4daf0",
    "opaque": "#f2c9c4",
    "untouched": "#ffffff",
}


def document(report: CudagraphReport) -> str:
    """Return the Graphviz source: one cluster for each graph, with its inputs coloured by class, and its pieces.

    Pieces are the parts that the graph is split into around operators that cannot be captured; uncaptured pieces are dashed.
    """
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
    producer = {}  # name of an FX node -> the Graphviz vertex that produces its value
    for index, placeholder in enumerate(use.plan.inputs):
        producer[placeholder.node or placeholder.name] = name = f"input_{number}_{index}"
        label = "\n".join(
            [placeholder.name, placeholder.kind, *([words.size(placeholder.nbytes)] if placeholder.nbytes else [])]
        )
        yield f'{name} [label={_quoted(label)}, shape=ellipse, fillcolor="{_COLOURS[placeholder.kind]}"];'
    if not use.plan.pieces:
        text = f"{words.plural(use.recordings, 'recording')}" if use.recordings else "runs uncaptured"
        yield _piece(f"piece_{number}_0", text, is_captured=bool(use.recordings))
        yield from (f"{name} -> piece_{number}_0;" for name in producer.values())
    for index, piece in enumerate(use.plan.pieces):
        name = f"piece_{number}_{index}"
        text = piece.why_uncaptured or words.plural(piece.launches, "launch", "launches")
        yield _piece(name, f"piece {index + 1}\n{text}", is_captured=not piece.why_uncaptured)
        sources = dict.fromkeys(producer[node] for node in piece.inputs if node in producer)
        yield from (f"{source} -> {name};" for source in sources)
        producer |= dict.fromkeys(piece.outputs, name)


def _piece(name: str, text: str, *, is_captured: bool) -> str:
    return f"{name} [label={_quoted(text)}{'' if is_captured else ', style=dashed'}];"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
