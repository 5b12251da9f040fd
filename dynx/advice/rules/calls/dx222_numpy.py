"""Rule DX222: a graph break at NumPy code that PyTorch cannot trace."""

from __future__ import annotations

from dynx.advice.facts.breaks import code_of
from dynx.advice.rule import BreakRule, one_of

_KINDS = (  # how torch's `gb_type` begins
    "attempted to trace numpy",
    "attempted to trace torch._numpy",
    "numpy function that produces",
    "Unsupported ndarray",
    "ndarray.astype(object)",
    "failed to convert numpy.ndarray",
)

RULE = BreakRule(
    id="DX222",
    title="PyTorch cannot trace a NumPy function",
    applies=lambda graph_break: graph_break.kind.startswith(_KINDS),
    title_of=lambda graph_break: f"PyTorch cannot trace this NumPy code{code_of(graph_break)}",
    advice=lambda graph_break: one_of(
        "call it outside the compiled function, and pass the result in", "write it with torch operations"
    ),
    is_call=True,
)
