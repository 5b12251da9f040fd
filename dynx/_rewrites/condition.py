"""Write an argument that is a condition as `True if … else False`: torch decides it while tracing, and guards the decision."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from dynx._rewrites.source import Source, code_of
from dynx.advice.facts.line_uses import FLAGS


def decided(source: Source, line: int) -> Iterator[str]:
    """Yield the new text of a file, with `is_causal=n > 1` at a line as `is_causal=True if n > 1 else False`."""
    arguments = [each for each in source.at_line(cst.Arg, line) if _is_flag(each) and not _is_bool(source.parent(each))]
    if arguments:
        yield source.replaced_all({each: each.with_changes(value=_decided(each.value)) for each in arguments})


def _is_flag(argument: cst.Arg) -> bool:
    value, name = argument.value, argument.keyword.value if argument.keyword is not None else ""
    is_test = isinstance(value, (cst.Comparison, cst.BooleanOperation)) or _is_bool(value)
    is_not = isinstance(value, cst.UnaryOperation) and isinstance(value.operator, cst.Not)
    is_variable = isinstance(value, cst.Name) and value.value not in ("True", "False", "None")
    return is_test or is_not or (name in FLAGS and is_variable)


def _is_bool(node: cst.CSTNode | None) -> bool:
    return isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value == "bool"


def _decided(value: cst.BaseExpression) -> cst.BaseExpression:
    return cst.parse_expression(f"True if {code_of(value)} else False")
