"""Rule DX206: a graph break in a block (`with`, `try`, loop) where torch cannot resume: the function continues eagerly."""

from __future__ import annotations

import re

from dynx.advice.facts.breaks import code_of, name_of
from dynx.advice.facts.calls import known_advice
from dynx.advice.rule import Advice, BreakRule, PlaceRule, one_of
from dynx.records.graph_break import GraphBreak


def _applies(graph_break: GraphBreak) -> bool:
    is_left = graph_break.resumable or graph_break.fatal or graph_break.kind == "Observed exception"
    return graph_break.block is not None and not is_left


def _title(graph_break: GraphBreak) -> str:
    function = graph_break.chain[0].function if graph_break.chain else "the function"
    return f"{name_of(graph_break)} inside a {graph_break.block}: {function} continues eagerly{code_of(graph_break)}"


def _advice(graph_break: GraphBreak, reason: BreakRule | None) -> Advice:
    out = f"move it out of the {graph_break.block}, or out of the function"
    known = known_advice(graph_break)  # torch names only the loop as the reason
    if reason is None and known is None:
        return one_of(out)
    advice = reason.advice(graph_break) if reason is not None else one_of(known or out)
    return advice if re.search(r"outside|out of", str(advice)) else advice.with_last(out)


RULE = PlaceRule(
    id="DX206",
    title="a graph break where torch cannot resume",
    priority=1,  # the whole function runs eagerly, whatever breaks the graph
    applies=_applies,
    title_of=_title,
    advice=_advice,
    is_call=True,
)
