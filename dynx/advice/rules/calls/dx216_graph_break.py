"""Rule DX216: a graph break because the user's code calls torch._dynamo.graph_break()."""

from __future__ import annotations

from dynx.advice.rule import BreakRule, one_of
from dynx.records.graph_break import GraphBreak


def _applies(graph_break: GraphBreak) -> bool:
    """Return whether the user's code calls `graph_break()`; calls by torch.optim do not count: users cannot avoid them."""
    return graph_break.kind.startswith("Call to `torch._dynamo.graph_break()`") and "graph_break" in graph_break.code


RULE = BreakRule(
    id="DX216",
    title="torch._dynamo.graph_break() is called",
    applies=_applies,
    title_of=lambda graph_break: "torch._dynamo.graph_break() splits the graph in two",
    advice=lambda graph_break: one_of("remove it, if the break is not wanted"),
)
