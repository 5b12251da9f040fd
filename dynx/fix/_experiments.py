"""Apply fixes to this process before its program begins, without changing a file."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from types import CodeType
from typing import Any

from dynx._reading.user_location import first_line
from dynx._trace.dispatch import trouble
from dynx.errors import UsageError
from dynx.records.fix import Fix, Mark


def apply(fixes: Iterable[Fix]) -> AbstractContextManager[Any]:
    """Apply fixes to this process until the returned context ends; what a statement has set stays.

    Raises UsageError for a fix that has to be written into a file, and whatever a statement raises, such as AttributeError for
    a setting that the installed torch lacks.
    """
    from dynx._torch.compilation import experiments

    stack = ExitStack()
    for fix in fixes:
        if fix.kind in ("statement", "stance"):
            run_statement(fix.code)
        elif fix.kind == "option" and fix.code == "dynx.compile":
            from dynx.guards import compile as keyed_compile

            stack.callback(experiments.instead_of_torch_compile(keyed_compile).remove)
        elif fix.kind == "option":
            stack.callback(experiments.with_arguments(_argument(fix.code)).remove)
        elif fix.kind == "mark" and fix.location is not None:
            stack.callback(experiments.before_tracing(_Marks(fix), trouble).remove)
        else:
            raise UsageError(f"{fix.code} can only be tried by changing a source file\n  run dynx fix")
    return stack


def run_statement(code: str) -> None:
    """Run a statement as if it stood at the beginning of the program; exceptions are not caught."""
    import torch

    exec(compile(code, "<dynx fix>", "exec"), {"torch": torch})


def _argument(code: str) -> Mapping[str, Any]:
    name, _, value = code.partition("=")
    return {name: ast.literal_eval(value)}


class _Marks:
    """Callback that marks tensors of a function as dynamic (`mark_dynamic`) before Dynamo traces it."""

    def __init__(self, fix: Fix) -> None:
        assert fix.location is not None
        self._file, self._line = Path(fix.location.file).name, fix.location.line
        self._marks = fix.marks
        self._is_required = fix.may_fail

    def __call__(self, code: CodeType, variables: Mapping[str, Any]) -> None:
        if (Path(code.co_filename).name, first_line(code)) != (self._file, self._line):
            return
        from torch import Tensor

        from dynx._torch.compilation.experiments import mark_dynamic

        for mark in self._marks:
            tensor = value_of(mark, variables)
            if isinstance(tensor, Tensor) and mark.dim < tensor.dim():
                mark_dynamic(tensor, mark.dim, is_required=self._is_required)


def value_of(mark: Mark, variables: Mapping[str, Any]) -> Any:
    """Return the value that a mark names, such as `batch['ids']`, given a function's variables; None if there is none."""
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
    raise TypeError(f"cannot evaluate {ast.unparse(node)}: not a name, attribute or item")
