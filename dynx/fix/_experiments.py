"""Apply fixes to this process before its program begins, without changing a file."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import CodeType
from typing import Any

from dynx._reading.user_location import first_line
from dynx._trace.dispatch import trouble
from dynx._trace.source_names import in_frame
from dynx.errors import UsageError
from dynx.records import Location
from dynx.records.fix import Fix, Mark


def apply(fixes: Iterable[Fix]) -> ExitStack:
    """Apply fixes to this process. Closing the returned stack undoes them, except for settings of torch that they changed.

    Raises UsageError for a fix that has to be written into a file, and whatever a statement raises, such as AttributeError for
    a setting that the installed torch lacks.
    """
    from dynx._torch.compilation import experiments

    stack = ExitStack()
    for fix in fixes:
        if fix.kind == "statement":
            import torch

            exec(compile(fix.code, "<dynx fix>", "exec"), {"torch": torch})
        elif fix.kind == "option" and fix.code == "dynx.compile":
            from dynx.guards import compile as keyed_compile

            stack.callback(experiments.instead_of_torch_compile(keyed_compile).remove)
        elif fix.kind == "option":
            name, _, value = fix.code.partition("=")
            stack.callback(experiments.with_arguments({name: ast.literal_eval(value)}).remove)
        elif fix.kind == "mark" and fix.location is not None:
            stack.callback(experiments.before_tracing(_marking(fix, fix.location), trouble).remove)
        else:
            raise UsageError(f"the fix {fix.code} changes source code, so it cannot be tried here\n  use `dynx fix`")
    return stack


def _marking(fix: Fix, function: Location) -> Callable[[CodeType, Mapping[str, Any]], None]:
    """Return a callback that marks tensors of a function as dynamic (`mark_dynamic`) before Dynamo traces it."""

    def mark_tensors(code: CodeType, variables: Mapping[str, Any]) -> None:
        if (Path(code.co_filename).name, first_line(code)) != (Path(function.file).name, function.line):
            return
        from torch import Tensor

        from dynx._torch.compilation.experiments import mark_dynamic

        for mark in fix.marks:
            tensor = value_of(replace(mark, source=in_frame(mark.source, code, variables)), variables)
            if isinstance(tensor, Tensor) and mark.dim < tensor.dim():
                mark_dynamic(tensor, mark.dim, is_required=fix.may_fail)

    return mark_tensors


def value_of(mark: Mark, variables: Mapping[str, Any]) -> Any:
    """Return the value of the expression `mark.source`, such as `batch['ids']`, in a function's variables; None if it fails."""
    try:
        return _evaluate(ast.parse(mark.source, mode="eval").body, variables)
    except (SyntaxError, KeyError, IndexError, AttributeError, TypeError):
        return None


def _evaluate(node: ast.expr, variables: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Name):
        return variables if node.id == "L" and "L" not in variables else variables[node.id]
    if isinstance(node, ast.Attribute):
        return getattr(_evaluate(node.value, variables), node.attr)
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return _evaluate(node.value, variables)[node.slice.value]
    raise TypeError(f"cannot evaluate {ast.unparse(node)}: it is not a name, an attribute or an item with a constant key")
