"""Rule DX220: a class attribute of an autograd.Function is read or changed, which Dynamo does not trace."""

from __future__ import annotations

import re

from dynx.advice.facts.breaks import code_of
from dynx.advice.rule import BreakRule, one_of
from dynx.records.graph_break import GraphBreak

_OF_CLASS = re.compile(r"\b(?:\w+\.)*[A-Z]\w*\.[a-z_]\w*\b(?!\()")


def _applies(graph_break: GraphBreak) -> bool:
    is_unknown = graph_break.kind == "Unsupported python_type() call" or "<unknown type>" in graph_break.explanation
    return is_unknown and bool(_OF_CLASS.search(graph_break.code))


RULE = BreakRule(
    id="DX220",
    title="a class attribute of an autograd.Function is used",
    applies=_applies,
    title_of=lambda graph_break: f"Dynamo does not trace class attributes of an autograd.Function{code_of(graph_break)}",
    advice=lambda graph_break: one_of(
        "pass the value to apply() as an argument, and change the attribute at the call, outside"
    ),
)
