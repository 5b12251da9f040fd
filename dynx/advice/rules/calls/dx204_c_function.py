"""Rule DX204: a graph break at a call of a C function, which has no Python code to trace."""

from __future__ import annotations

import re

from dynx.advice.facts.breaks import UNTRACED, code_of
from dynx.advice.facts.calls import called_in, known_advice
from dynx.advice.rule import BreakRule, one_of
from dynx.records.graph_break import GraphBreak


def _applies(graph_break: GraphBreak) -> bool:
    text = graph_break.explanation
    return graph_break.kind.startswith(UNTRACED) or (
        graph_break.kind.startswith("Attempted to call function marked as skipped")
        and bool(re.search(r"builtin `|C/C\+\+", text))
    )


def _untraced(graph_break: GraphBreak) -> str:
    written, callee = called_in(graph_break), graph_break.callee
    if written is not None or callee is None:
        return written or "this call"
    name = callee.removeprefix("builtins.").removeprefix("_io.")
    return f"{name}()" if name.rpartition(".")[2] in graph_break.code else f"{name}(), which this line calls"


RULE = BreakRule(
    id="DX204",
    title="a C function has no Python code to trace",
    priority=-2,  # torch uses these names for many calls; a rule for a specific call says more
    applies=_applies,
    title_of=lambda graph_break: f"Dynamo does not trace {_untraced(graph_break)}{code_of(graph_break)}",
    advice=lambda graph_break: one_of(known_advice(graph_break) or "call it outside, or wrap it as a torch.library.custom_op"),
    is_call=True,
)
