"""Rule DX211: a graph break where random numbers are drawn from a generator object: `torch.Generator`, or one of numpy."""

from __future__ import annotations

import re

from dynx.advice.facts.breaks import code_of
from dynx.advice.rule import BreakRule, one_of
from dynx.records.graph_break import GraphBreak


def _applies(graph_break: GraphBreak) -> bool:
    if graph_break.kind == "Unsupported method call":
        return bool(re.search(r"of class `(?:Generator|RandomState)`", graph_break.explanation))
    if graph_break.kind.startswith(("An opaque object was created", "torch.Generator")):
        return "enerator" in f"{graph_break.code}{graph_break.kind}"
    return graph_break.kind == "Failed to convert args/kwargs to proxy" and "generator" in graph_break.code


RULE = BreakRule(
    id="DX211",
    title="random numbers are drawn from a generator object",
    applies=_applies,
    title_of=lambda graph_break: f"Dynamo does not trace a generator object{code_of(graph_break)}",
    advice=lambda graph_break: one_of("draw the random numbers outside the compiled function and pass them in as a tensor"),
)
