"""Write an argument that is a condition as `True if … else False`: torch decides it while tracing, and guards the decision."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from dynx._rewrites.source import Source, code_of

_FLAGS = ("is_causal",)  # keywords for bools, whatever is passed


def decided(source: Source, line: int) -> Iterator[str]:
    """Yield the new text of a file, with `is_causal=n > 1` at a line as `is_causal=True if n > 1 else False`."""
    arguments = [each for each in source.at_line(cst.Arg, line) if _is_condition(each)]
    if arguments:
        yield source.replaced_all({each: each.with_changes(value=_decided(each.value)) for each in arguments})


def _is_condition(argument: cst.Arg) -> bool:
    value, name = argument.value, argument.keyword.value if argument.keyword is not None else ""
    if isinstance(value, cst.Call):
        return isinstance(value.func, cst.Name) and value.func.value == "bool" and bool(name)
    is_test = isinstance(value, (cst.Comparison, cst.BooleanOperation))
    is_not = isinstance(value, cst.UnaryOperation) and isinstance(value.operator, cst.Not)
    return bool(name) and (is_test or is_not or (name in _FLAGS and isinstance(value, (cst.Name, cst.Attribute))))


def _decided(value: cst.BaseExpression) -> cst.BaseExpression:
    return cst.parse_expression(f"True if {code_of(value)} else False")
