"""Rule DX208: a graph break at a mutation that Dynamo does not support."""

from __future__ import annotations

import re

from dynx.advice.rule import Advice, BreakRule, one_of
from dynx.records.graph_break import GraphBreak

# matched against torch's `gb_type` only: explanations of other graph breaks mention mutation too
_KINDS = re.compile(
    r"^(?:Unsupported Tensor\.(?:resize|set|requires_grad)_|requires_grad_\(\) intermediate|Failed to (?:mutate|set tensor)"
    r"|setattr\(\) on|.*\b[Mm]utating\b"
    r"|.*STORE_ATTR|missing_mp_ass)"
)
_EXPLAINED = re.compile(r"in-?place view|item assignment|__(?:set|del)(?:item|attr)__")
_KINDS_OF_EXPLAINED = ("Unsupported function call (delayed)", "Unsupported method call", "C-implemented special method")


def _applies(graph_break: GraphBreak) -> bool:
    explained = graph_break.kind.startswith(_KINDS_OF_EXPLAINED) and _EXPLAINED.search(graph_break.explanation)
    return bool(_KINDS.match(graph_break.kind) or explained)


def _advice(graph_break: GraphBreak) -> Advice:
    if "requires_grad" in graph_break.explanation or "requires_grad" in graph_break.code:
        return one_of(
            "pass in a tensor that requires grad: x.detach().requires_grad_() before the call",
            "where the tensor is computed here, compile what is before and what is after this line as two functions",
        )
    if "resize_" in graph_break.code:
        return one_of("allocate a new tensor, or resize it outside the compiled function")
    return one_of("make this change before the call")


RULE = BreakRule(
    id="DX208",
    title="a mutation that Dynamo does not support",
    priority=-1,  # after DX211 and DX214: generator objects and sparse tensors are mutated too
    applies=_applies,
    title_of=lambda graph_break: graph_break.explanation.splitlines()[0] if graph_break.explanation else graph_break.reason,
    advice=_advice,
)
