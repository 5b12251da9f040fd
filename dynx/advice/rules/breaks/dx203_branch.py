"""Rule DX203: a graph break where Python branches on the value of a tensor."""

from __future__ import annotations

from dynx.advice.facts import fixes
from dynx.advice.facts.breaks import branch_advice, code_of
from dynx.advice.rule import BreakRule, one_of
from dynx.records.graph_break import GraphBreak


def _applies(graph_break: GraphBreak) -> bool:
    kind = graph_break.kind.lower()
    return kind.startswith(("data-dependent", "data dependent")) or "data-dependent expression" in kind


RULE = BreakRule(
    id="DX203",
    title="Python branches on the value of a tensor",
    applies=_applies,
    title_of=lambda graph_break: f"a Python branch depends on a tensor's value{code_of(graph_break)}",
    advice=lambda graph_break: one_of(branch_advice(graph_break.code)),
    fixes=fixes.branch,
)
