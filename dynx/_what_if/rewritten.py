"""The code of a function as it would be with a fix that rewrites a line; no file and no function of the program changes."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from types import CodeType

from dynx._torch.retracing.other_code import OtherCode
from dynx.records.fix import Fix

_Functions = ast.FunctionDef | ast.AsyncFunctionDef


def rewritten(fix: Fix) -> Iterator[tuple[OtherCode, str]]:
    """Yield the code, and its new lines, for each way in which `dynx fix` would rewrite the line of `fix`, the best first.

    There is none without libcst, in an installed package, or if the source text of the function is not at hand.
    """
    if fix.location is None or find_spec("libcst") is None:
        return
    from dynx._rewrites import at_line, is_of_library
    from dynx._rewrites.source import parse

    file, line = fix.location.file, fix.location.line
    text = None if is_of_library(file) else _around(linecache.getlines(file), line)
    source = parse(text) if text is not None else None
    if text is None or source is None:
        return
    before = ast.parse(text)
    function = min(_functions_at(before, line), key=lambda each: (each.end_lineno or 0) - each.lineno, default=None)
    if function is None:
        return
    old = _code_of(function, before, file)
    for new_text in at_line(source, fix):
        new = _code_of(function, _at_old_lines(text, new_text), file)
        if new is not None and old is not None and new.co_freevars == old.co_freevars:
            yield OtherCode(old, new), _changed(text, new_text)


def _around(lines: Sequence[str], line: int) -> str | None:
    """Return the text of a file without the statements, other than those with imports, that do not contain a line.

    Their lines are empty, which makes it quick to parse. Imports decide the bytecode of calls: Python compiles `F.relu(x)` in
    another way if the module imports `F`. Return None if the text is no Python code.
    """
    try:
        body = ast.parse("".join(lines)).body
    except SyntaxError:
        return None
    kept = {
        number
        for each in body
        for number in [range(_first_line(each), (each.end_lineno or each.lineno) + 1)]
        if line in number or _imports(each)
    }
    return "".join(text if any(number in each for each in kept) else "\n" for number, text in enumerate(lines, 1))


def _imports(statement: ast.stmt) -> bool:
    """Return whether a statement of a module has an import, such as one in a `try` block."""
    is_definition = isinstance(statement, _Functions | ast.ClassDef)
    return not is_definition and any(isinstance(each, ast.Import | ast.ImportFrom) for each in ast.walk(statement))


def _first_line(statement: ast.stmt) -> int:
    decorators = getattr(statement, "decorator_list", ())
    return min([statement.lineno, *(each.lineno for each in decorators)])


def _functions_at(tree: ast.Module, line: int) -> Iterator[_Functions]:
    for node in ast.walk(tree):
        if isinstance(node, _Functions) and node.lineno <= line <= (node.end_lineno or node.lineno):
            yield node


def _code_of(function: _Functions, tree: ast.Module, file: str) -> CodeType | None:
    """Return the code of a function in a module that is compiled from a syntax tree."""
    wanted = function.name, _first_line(function)
    codes = [compile(tree, file, "exec", dont_inherit=True)]
    for code in codes:
        if (code.co_name, code.co_firstlineno) == wanted:
            return code
        codes += [each for each in code.co_consts if isinstance(each, CodeType)]
    return None


def _changed(old: str, new: str) -> str:
    """Return the lines of a new text that differ from the old text, as one line; empty if other lines are between them."""
    before, after = old.splitlines(), new.splitlines()
    changed = after[slice(*_range(before, after))]
    return "; ".join(line.strip() for line in changed) if not set(before).intersection(changed) else ""


def _at_old_lines(old: str, new: str) -> ast.Module:
    """Return the syntax tree of a new text, with the line numbers of the old text.

    What a trace says about the lines around the changed ones is then true of the user's file.
    """
    before, after = old.splitlines(), new.splitlines()
    first, end = _range(before, after)
    tree = ast.parse(new)
    for node in ast.walk(tree):
        for name, column in (("lineno", "col_offset"), ("end_lineno", "end_col_offset")):
            number = getattr(node, name, None)
            if number is None or number <= first:
                continue
            if number > end:
                setattr(node, name, number - len(after) + len(before))
            else:
                setattr(node, name, first + 1)
                setattr(node, column, 0)
    return tree


def _range(before: Sequence[str], after: Sequence[str]) -> tuple[int, int]:
    """Return the first index of the lines of `after` that differ from `before`, and the index behind the last."""
    first = _equal(before, after)
    return first, len(after) - _equal(before[first:][::-1], after[first:][::-1])


def _equal(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how many lines at the beginning are equal."""
    return next((number for number, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
