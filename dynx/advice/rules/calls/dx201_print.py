"""Rule DX201: a print or log call breaks the graph."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dynx.advice.facts.breaks import is_print, name_of
from dynx.advice.facts.fixes import CONFIG
from dynx.advice.rule import BreakRule, one_of
from dynx.records.fix import Fix, rewrite
from dynx.records.graph_break import GraphBreak


def _fixes(graph_break: GraphBreak) -> Iterator[Fix]:
    name = (graph_break.callee or "").removeprefix("builtins.")
    if name == "print" or re.search(r"\bprint\(", graph_break.code):
        yield Fix("statement", f"{CONFIG}.reorderable_logging_functions.add(print)")
    elif "warn" in f"{name}{graph_break.kind}":
        yield Fix("statement", f"import warnings; {CONFIG}.reorderable_logging_functions.add(warnings.warn)")
    yield rewrite("eager only", graph_break.location.own)


RULE = BreakRule(
    id="DX201",
    title="a print or log call breaks the graph",
    applies=is_print,
    title_of=lambda graph_break: f"{name_of(graph_break)} splits the graph in two",
    advice=lambda graph_break: one_of("drop it, or move it out of the compiled function"),
    fixes=_fixes,
)
