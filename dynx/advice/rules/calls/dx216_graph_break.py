"""Rule DX216: a graph break because torch._dynamo.graph_break() is called."""

from __future__ import annotations

from dynx.advice.rule import BreakRule, one_of

RULE = BreakRule(
    id="DX216",
    title="torch._dynamo.graph_break() is called",
    priority=-1,  # after DX221: torch.optim calls it too
    applies=lambda graph_break: graph_break.kind.startswith("Call to `torch._dynamo.graph_break()`"),
    title_of=lambda graph_break: "torch._dynamo.graph_break() splits the graph in two",
    advice=lambda graph_break: one_of("remove it, if the break is not wanted"),
)
