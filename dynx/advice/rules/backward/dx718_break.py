"""Rule DX718: code of torch, which a captured backward pass calls, breaks its graph."""

from __future__ import annotations

from dynx.advice.rule import Advice, BreakRule, expected, one_of
from dynx.records.graph_break import GraphBreak

_INTERPRETS = "Interpreter.__init__"  # what runs the backward graph of an autograd.Function that Dynamo traced


def _applies(graph_break: GraphBreak) -> bool:
    """Return whether only captured passes met the graph break, and no line of a hook or an autograd.Function reaches it."""
    return not graph_break.chain and bool(graph_break.compiles) and all(id.startswith("!") for _, id in graph_break.compiles)


def _title(graph_break: GraphBreak) -> str:
    where = f" at a call of {graph_break.callee}()" if graph_break.callee else f": {graph_break.reason}"
    return f"a captured backward pass breaks its graph in torch's own code{where}"


def _advice(graph_break: GraphBreak) -> Advice:
    if graph_break.callee == _INTERPRETS:
        return one_of('compile the function that calls autograd.Function with backend="aot_eager" or "inductor", not "eager"')
    return expected("leave it: no line of the program breaks this graph")


RULE = BreakRule(
    id="DX718",
    title="a captured backward pass breaks its graph in torch's own code",
    priority=100,  # before rules whose advice is about a line of the program
    applies=_applies,
    title_of=_title,
    advice=_advice,
)
