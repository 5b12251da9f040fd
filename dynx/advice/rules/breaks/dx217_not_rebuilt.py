"""Rule DX217: after a graph break, Dynamo cannot rebuild a value, such as a generator, outside the graph."""

from __future__ import annotations

from dynx.advice.facts.breaks import code_of, unbuildable
from dynx.advice.rule import BreakRule, one_of

RULE = BreakRule(
    id="DX217",
    title="a value that Dynamo cannot rebuild after a graph break",
    priority=2,  # before DX206: a block around the break is not its reason
    applies=lambda graph_break: graph_break.kind.startswith(("Reconstruction failure", "Generator reconstruction")),
    title_of=lambda graph_break: f"Dynamo cannot rebuild {unbuildable(graph_break)} outside the graph{code_of(graph_break)}",
    advice=lambda graph_break: one_of(
        "remove the graph break inside this call, if there is one", "use a list or tensors instead"
    ),
    is_consequence=True,
)
