"""Rule DX215: a graph break where a tensor or module is copied with copy.deepcopy."""

from __future__ import annotations

from dynx.advice.facts.breaks import code_of
from dynx.advice.rule import BreakRule, one_of

RULE = BreakRule(
    id="DX215",
    title="a tensor or module is copied with copy.deepcopy",
    priority=-4,  # after DX204 and DX205, which name the call
    applies=lambda graph_break: "copy.deepcopy" in graph_break.kind,
    title_of=lambda graph_break: f"copy.deepcopy runs inside the compiled function{code_of(graph_break)}",
    advice=lambda graph_break: one_of("copy outside the compiled function; use .clone() for a tensor"),
)
