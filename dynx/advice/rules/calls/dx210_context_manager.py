"""Rule DX210: a graph break at a context manager that Dynamo does not trace."""

from __future__ import annotations

import re

from dynx.advice.facts.breaks import code_of
from dynx.advice.facts.calls import known_advice
from dynx.advice.rule import Advice, BreakRule, one_of
from dynx.records.graph_break import GraphBreak


def _advice(graph_break: GraphBreak) -> Advice:
    if not re.match(r"(?:async )?with\b", graph_break.code):  # entered inside a call on this line
        return one_of(known_advice(graph_break) or "call it outside the compiled function")
    if re.search(r"`\w*[Ll]ock`", graph_break.explanation):
        return one_of("take the lock around the call, outside the compiled function")
    return one_of("enter it around the call, outside the compiled function")


RULE = BreakRule(
    id="DX210",
    title="a context manager that Dynamo does not trace",
    priority=3,  # before DX206: it is the block where torch cannot resume
    applies=lambda graph_break: graph_break.kind == "Unsupported context manager",
    title_of=lambda graph_break: f"Dynamo does not trace this context manager{code_of(graph_break)}",
    advice=_advice,
    is_call=True,
)
