"""Rule DX214: a graph break at sparse tensors, which Dynamo does not trace."""

from __future__ import annotations

from dynx.advice.facts.breaks import code_of
from dynx.advice.rule import BreakRule, one_of

RULE = BreakRule(
    id="DX214",
    title="a tensor layout that Dynamo does not trace",
    applies=lambda graph_break: (
        "sparse" in f"{graph_break.kind} {graph_break.callee}".lower() or "sparse Tensor" in graph_break.explanation
    ),
    title_of=lambda graph_break: f"Dynamo does not trace sparse tensors{code_of(graph_break)}",
    advice=lambda graph_break: one_of(
        "use the sparse tensor outside the compiled function, or a dense tensor, or index_add / scatter_add"
    ),
)
