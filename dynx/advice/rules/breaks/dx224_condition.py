"""Rule DX224: a graph break where an operation gets a condition on a dynamic size, such as `is_causal=n > 1`."""

from __future__ import annotations

import re

from dynx.advice.facts.breaks import code_of
from dynx.advice.facts.line_uses import flags
from dynx.advice.rule import Advice, BreakRule, one_of
from dynx.records.finding import Alternative
from dynx.records.fix import Fix, rewrite
from dynx.records.graph_break import GraphBreak

_KEYWORD = re.compile(r"(\w+=)(?!=)(.*)")


def _applies(graph_break: GraphBreak) -> bool:
    is_refused = "TypeError when making fake tensor call" in (graph_break.kind, graph_break.reason)  # the reason, in a loop
    return is_refused and bool(flags(graph_break.code))


def _advice(graph_break: GraphBreak) -> Advice:
    flag = flags(graph_break.code)[0]
    name, value = match.groups() if (match := _KEYWORD.match(flag)) is not None else ("", flag)
    value = value.removeprefix("bool(").removesuffix(")") if value.startswith("bool(") else value
    decided = f"write {name}True if {value} else False: torch decides it while tracing, and compiles each case on its own"
    return one_of(
        Alternative(decided, rewrite("condition").name),
        f"pass {name.removesuffix('=') or value} as an argument of the compiled function: True or False",
    )


def _fixes(graph_break: GraphBreak) -> list[Fix]:
    return [rewrite("condition", graph_break.location.own)]


RULE = BreakRule(
    id="DX224",
    title="a condition on a dynamic size is an argument of an operation",
    applies=_applies,
    # torch's records do not say which argument it is
    title_of=lambda graph_break: f"most likely, an operation got a condition on a dynamic size{code_of(graph_break)}",
    advice=_advice,
    fixes=_fixes,
)
