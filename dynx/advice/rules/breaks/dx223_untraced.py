"""Rule DX223: a graph break that no other rule explains."""

from __future__ import annotations

from dynx.advice.facts.breaks import code_of
from dynx.advice.facts.calls import known_advice
from dynx.advice.rule import Advice, BreakRule, one_of
from dynx.records.graph_break import GraphBreak


def _applies(graph_break: GraphBreak) -> bool:
    # an exception that the function raises is the program's own; where no graph break is allowed, DX302 explains the failure
    is_of_program = graph_break.kind.startswith("Observed exception") or graph_break.fatal
    return bool(graph_break.code) and not (is_of_program or graph_break.compiled_autograd)


def _advice(graph_break: GraphBreak) -> Advice:
    return one_of(known_advice(graph_break) or "move this line out of the compiled function, and pass what it computes")


def _title(graph_break: GraphBreak) -> str:
    return f"Dynamo does not trace this line ({graph_break.reason.rstrip('.')}){code_of(graph_break)}"


RULE = BreakRule(
    id="DX223",
    title="code that Dynamo does not trace",
    priority=-9,  # after all other rules
    applies=_applies,
    is_fallback=True,
    title_of=_title,
    advice=_advice,
)
