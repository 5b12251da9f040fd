"""Rule DX219: a graph break where a NumPy array is indexed with a number that changes between calls."""

from __future__ import annotations

import re

from dynx.advice.facts.breaks import code_of
from dynx.advice.rule import BreakRule, one_of

RULE = BreakRule(
    id="DX219",
    title="a NumPy array is indexed with a number that changes",
    priority=-1,  # torch uses this name for any operator that fails on fake tensors
    applies=lambda graph_break: (
        graph_break.kind.startswith("TypeError when making fake tensor call")
        and bool(re.search(r"[\w)\]]\[[^\]]*[A-Za-z_]", graph_break.code))
    ),
    title_of=lambda graph_break: f"an array cannot be indexed with a number that is dynamic{code_of(graph_break)}",
    advice=lambda graph_break: one_of(
        "make the array a tensor, such as a buffer (torch.from_numpy), and the index a tensor of one element",
        "index outside the compiled function and pass the value in as a tensor",
    ),
)
