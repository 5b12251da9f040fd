"""Find out whether torch can ever trace a line: it traces functions only, and Python compiles no code for some lines."""

from __future__ import annotations

import ast
import dis
import gc
import inspect
import linecache
from collections.abc import Callable
from functools import lru_cache
from types import CodeType, FunctionType
from typing import NamedTuple

from dynx._bytecode import statements
from dynx._bytecode.globals_read import codes_in
from dynx._bytecode.statements import Statement, can_hold, step_at

WhyNot = Callable[[FunctionType], str | None]


class Reach(NamedTuple):
    """The result of `reach_of`: whether torch can trace a statement, and if not, why.

    Attributes:
        why_never: The reason why torch can never trace the statement; None if it may.
        lambdas: The code of the lambdas in a statement outside of functions; torch can trace no other part of the statement.
        is_untraced: Whether the statement is in a function. Then `why_never`, if not None, applies to the whole function.
    """

    why_never: str | None
    lambdas: tuple[CodeType, ...] = ()
    is_untraced: bool = False


def reach_of(file: str, statement: Statement, why_not_traced: WhyNot) -> Reach:
    """Find out from the source, and from the functions loaded now, whether torch can trace a statement of a file.

    `why_not_traced` returns the reason why torch never traces a function, or None if it may trace the function.
    """
    codes = _codes("".join(linecache.getlines(file)), file)
    if codes is None:
        return Reach(None)  # Python cannot compile the file by itself, for example a cell of a notebook with magics
    holders = [code for code in codes if _begins_in(code, statement)]
    functions = [code for code in holders if code.co_flags & inspect.CO_OPTIMIZED]
    if functions:
        return Reach(_why_untraced(file, functions, why_not_traced), is_untraced=True)
    if not holders:
        return Reach("Python compiles no code for it")
    lambdas = tuple(code for code in codes if code.co_name == "<lambda>" and code.co_firstlineno in statement)
    if holders[0].co_name == "<module>":
        return Reach("it runs when the module is imported, which torch does not trace", lambdas)
    return Reach(f"it runs when the class {holders[0].co_name} is created, which torch does not trace", lambdas)


def nearest_traceable_line(file: str, line: int, why_not_traced: WhyNot) -> int | None:
    """Return the line nearest to `line` that begins a statement torch may trace, or None (`why_not_traced`: see `reach_of`)."""
    near = sorted(statements.statements(file), key=lambda statement: (abs(statement.first - line), statement.first < line))
    return next((statement.first for statement in near if reach_of(file, statement, why_not_traced).why_never is None), None)


def loaded_functions(file: str, code: CodeType) -> list[FunctionType]:
    """Return all function objects of a file that have this code object, or a copy that Python compiled from the same source."""
    return [
        function
        for function in gc.get_objects()
        if type(function) is FunctionType and _is_same(function.__code__, code) and function.__code__.co_filename == file
    ]


def _is_same(code: CodeType, other: CodeType) -> bool:
    names = code.co_qualname == other.co_qualname and code.co_firstlineno == other.co_firstlineno
    return names and list(code.co_positions()) == list(other.co_positions())


@lru_cache(maxsize=8)
def _codes(source: str, file: str) -> tuple[CodeType, ...] | None:
    try:
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        return tuple(codes_in(compile(source, file, "exec", flags, dont_inherit=True))) if source else None
    except (SyntaxError, ValueError, RecursionError):
        return None


def _begins_in(code: CodeType, statement: Statement) -> bool:
    if code.co_name != "<module>" and not can_hold(code, statement):  # a module begins on line 1
        return False
    steps = [step_at(one.opname, one.argval, one.positions) for one in dis.get_instructions(code)]
    return bool(statements.beginnings(steps, statement))


def _why_untraced(file: str, codes: list[CodeType], why_not_traced: WhyNot) -> str | None:
    """Return why torch traces no function object with one of these codes; None if it may trace one, or if there is none."""
    functions = [function for code in codes for function in loaded_functions(file, code)]
    whys = [why_not_traced(function) for function in functions]
    return whys[0] if whys and all(whys) else None
