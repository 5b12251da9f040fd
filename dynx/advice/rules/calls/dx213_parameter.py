"""Rule DX213: a graph break where the compiled function creates a parameter or module."""

from __future__ import annotations

from dynx.advice.facts.breaks import code_of
from dynx.advice.rule import BreakRule, one_of

RULE = BreakRule(
    id="DX213",
    title="a parameter or module is created inside the compiled function",
    priority=-4,  # after DX205: a skipped function may create it
    applies=lambda graph_break: (
        graph_break.kind.startswith("Attempted to use `torch.nn.Parameter()`") or "nn.Module` inside" in graph_break.explanation
    ),
    title_of=lambda graph_break: f"a parameter is created inside the compiled function{code_of(graph_break)}",
    advice=lambda graph_break: one_of(
        "create it in __init__, or before the call; a tensor that is not trained needs no Parameter"
    ),
)
