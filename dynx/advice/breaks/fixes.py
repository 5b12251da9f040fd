"""The changes that `dynx fix` can try for a graph break: settings of torch, and rewrites of the line."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dynx.advice.breaks.rules import rule_by_reason
from dynx.records.fix import Fix, rewrite
from dynx.records.graph_break import GraphBreak

_CONFIG = "torch._dynamo.config"


def of_break(graph_break: GraphBreak) -> tuple[Fix, ...]:
    """Return the fixes to try for a graph break."""
    rule = rule_by_reason(graph_break)
    fixes = [*_BREAKS[rule.id](graph_break)] if rule is not None and rule.id in _BREAKS else []
    return tuple(fixes)


def _print(graph_break: GraphBreak) -> Iterator[Fix]:
    name = (graph_break.callee or "").removeprefix("builtins.")
    if name == "print" or re.search(r"\bprint\(", graph_break.code):
        yield Fix("statement", f"{_CONFIG}.reorderable_logging_functions.add(print)")
    elif "warn" in f"{name}{graph_break.kind}":
        yield Fix("statement", f"import warnings; {_CONFIG}.reorderable_logging_functions.add(warnings.warn)")
    yield rewrite("eager only", graph_break.location.own)


def _number(graph_break: GraphBreak) -> Iterator[Fix]:
    yield Fix("statement", f"{_CONFIG}.capture_scalar_outputs = True")
    yield from _branch(graph_break)


def _branch(graph_break: GraphBreak) -> Iterator[Fix]:
    yield rewrite("where", graph_break.location.own)
    yield rewrite("assert", graph_break.location.own)


def _size(graph_break: GraphBreak) -> Iterator[Fix]:
    yield Fix("statement", f"{_CONFIG}.capture_dynamic_output_shape_ops = True")


def _gradient(graph_break: GraphBreak) -> Iterator[Fix]:
    yield Fix("statement", f"{_CONFIG}.trace_autograd_ops = True")


_BREAKS = {"DX201": _print, "DX202": _number, "DX203": _branch, "DX209": _size, "DX212": _gradient}
