"""Write an argument that is a condition as `True if … else False`: torch decides it while tracing, and guards the decision."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from dynx._rewrites.source import Source, code_of
from dynx.advice.facts.line_uses import own_flags


def decided(source: Source, line: int) -> Iterator[str]:
    """Yield the new text of a file, with `is_causal=n > 1` at a line as `is_causal=True if n > 1 else False`."""
    arguments = [each for each in source.at_line(cst.Arg, line) if _is_flag(each) and not _is_bool(source.parent(each))]
    if arguments:
        yield source.replaced_all({each: each.with_changes(value=_decided(each.value)) for each in arguments})


def _is_flag(argument: cst.Arg) -> bool:
    nested = cst.Call(cst.Name("call"), [argument.with_changes(comma=cst.MaybeSentinel.DEFAULT)])
    return bool(own_flags(code_of(nested)))


def _is_bool(node: cst.CSTNode | None) -> bool:
    return isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value == "bool"


def _decided(value: cst.BaseExpression) -> cst.BaseExpression:
    return cst.parse_expression(f"True if {code_of(value)} else False")
