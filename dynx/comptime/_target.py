"""Resolve the target of a probe or breakpoint: a callable, a module class, a line, or the name of a function."""

from __future__ import annotations

import functools
import gc
import inspect
import linecache
import os
import pkgutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

from dynx._bytecode import globals_read, statements
from dynx._bytecode.reach import Reach, loaded_functions, nearest_traceable_line, reach_of
from dynx._bytecode.statements import Statement, can_hold, nearest_line, statement_at
from dynx._bytecode.trail import Code
from dynx._torch.compilation.unwrap import Layer, function_of, unwrap
from dynx._torch.tracing import line_hook, trace_rules
from dynx.errors import ProbeFailed
from dynx.records.location import short_path


@dataclass(frozen=True, slots=True)
class Target:
    """The location of a probe or breakpoint: a statement, or the beginning of a function if `statement` is None."""

    file: str
    function: FunctionType | None  # None: every function of the file
    statement: Statement | None

    @property
    def line(self) -> int:
        if self.statement is not None:
            return self.statement.first
        assert self.function is not None
        return self.function.__code__.co_firstlineno

    @property
    def place(self) -> str:
        """The location as `file.py:12`."""
        return f"{short_path(self.file)}:{self.line}"

    def covers(self, code: CodeType) -> bool:
        """Return whether a code object may contain this location; pass the user's function's code for a resume function."""
        if real_path(code.co_filename) != real_path(self.file):
            return False
        if self.statement is not None:
            return can_hold(code, self.statement)
        return self.function is not None and code is self.function.__code__

    def begins(self, code: Code) -> tuple[int, ...]:
        """Return the indices, in a code object, of the instructions at which this location's statement or function begins."""
        if not self.covers(code.original):
            return ()
        if self.statement is None:
            first = None if code.code is not code.original else statements.body_start(line_hook.steps_of(code.code))
            return () if first is None else (first,)  # a function begins once, not again in its resume functions
        return line_hook.shifted(code, statements.beginnings(line_hook.steps_of(code.original), self.statement))


def resolve(target: Any, line: int | None) -> Target:
    """Find the statement or function at which a probe or breakpoint has to stop.

    `target` is a callable, a module class, `"file.py:12"`, `"file.py::function"` or `"module:function"`. `line` selects a line
    of the target's file, by default the beginning of the function. Raises ProbeFailed, with advice, if no probe can stop there.
    """
    if isinstance(target, str):
        file, colon, rest = target.rpartition(":")
        if colon and rest.isdigit():
            return _at_line(find_file(file, target), None, int(rest))
        target = _in_file(file[:-1], rest, target) if file.endswith(":") else _by_name(target)
    function = _function(target)
    if line is None:
        return Target(function.__code__.co_filename, function, None)
    return _at_line(function.__code__.co_filename, function, line)


def _at_line(file: str, function: FunctionType | None, line: int) -> Target:
    statement = statement_at(file, line)
    near = nearest_line(file, line)
    if near is None:
        raise ProbeFailed(
            f"cannot stop at line {line} of {short_path(file)}: the source of the file cannot be read\n"
            "  pass a function without a line, to stop where it begins"
        )
    if statement is None:
        raise ProbeFailed(f"no statement begins at {short_path(file)}:{line}\n  the nearest line with code is {near}")
    if function is not None:
        lines, first = inspect.getsourcelines(function)
        if not first <= line < first + len(lines):
            raise ProbeFailed(
                f"line {line} is not in {function.__qualname__}, which is lines {first} to {first + len(lines) - 1} of "
                f"{short_path(file)}\n  pass a line number of the file, not one counted from the start of the function"
            )
        if not can_hold(function.__code__, statement):  # the line is part of the `def`, signature or decorators
            return Target(file, function, None)
    reach = reach_of(file, statement, trace_rules.why_never_traced)
    if reach.why_never is None:
        return Target(file, function, statement)
    lambdas = _lambdas_at(file, line, reach)
    if len(lambdas) == 1:
        return Target(file, lambdas[0], None)
    raise ProbeFailed(
        f"a probe at {short_path(file)}:{line} can never fire: {reach.why_never}\n  {_advice(file, line, reach, lambdas)}"
    )


def _lambdas_at(file: str, line: int, reach: Reach) -> list[FunctionType]:
    """Return the existing lambda functions of a statement (`reach`): those that begin on `line` or, if none does, all."""
    on_line = [code for code in reach.lambdas if code.co_firstlineno == line] or reach.lambdas
    return [function for code in on_line for function in loaded_functions(file, code)]


def _advice(file: str, line: int, reach: Reach, lambdas: Sequence[FunctionType]) -> str:
    if lambdas:
        return f"pass one of its {len(lambdas)} lambdas instead of the line"
    if reach.lambdas:
        return "import the module first: then the probe fires in the lambda"
    near = None if reach.is_untraced else nearest_traceable_line(file, line, trace_rules.why_never_traced)
    return "set the probe on the line that calls it" if near is None else f"the nearest line that torch may trace is {near}"


@functools.cache
def real_path(file: str) -> str:
    """Resolve symbolic links. Cached, because it is called with the file of every function in the process."""
    return os.path.realpath(file)


def find_file(name: str, target: str = "") -> str:
    """Return the source file for a path, the name of a notebook cell, or the last part of a loaded module's path.

    Raises ProbeFailed, quoting `target`, if no file or more than one matches.
    """
    if os.path.isfile(name):
        return os.path.abspath(name)
    if name in linecache.cache:
        return name  # a notebook's cell
    files = [getattr(module, "__file__", None) for module in tuple(sys.modules.values())]
    paths = [os.path.realpath(file) for file in files if isinstance(file, str)]
    matches = [path for path in paths if path.endswith(os.sep + name.lstrip("./"))]
    if len(matches) == 1:
        return matches[0]
    also = f"; {len(matches)} loaded modules have such a path: {', '.join(matches[:3])}" if matches else ""
    raise ProbeFailed(
        f"probe({target!r}): file {name} does not exist{also}"
        "\n  pass a path relative to the current directory, or module:function"
    )


def _in_file(name: str, function: str, target: str) -> FunctionType:
    file = find_file(name, target)
    loaded = [found for found in functions_in(file, None) if found.__qualname__.replace("<locals>.", "") == function]
    if not loaded:
        raise ProbeFailed(
            f"probe({target!r}): no function {function} of {short_path(file)} is loaded\n"
            "  import the module, or define the function, before the probe is set"
        )
    return loaded[0]


def _by_name(name: str) -> Any:
    if ":" not in name:
        raise ProbeFailed(
            f"probe({name!r}): the target is not of a valid form\n"
            "  valid forms: file.py:12, file.py::function, module:function, or the function itself"
        )
    try:
        return pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ProbeFailed(f"probe({name!r}): the target cannot be loaded: {type(error).__name__}: {error}") from None


def _function(target: Any) -> FunctionType:
    """Return the Python function that Dynamo traces when `target` is called; raise ProbeFailed if it traces none."""
    traced = _traced(target)
    if trace_rules.is_disabled(target):
        raise ProbeFailed(
            f"{_name(target)} is never traced: torch.compiler.disable was applied to it\n"
            "  set the probe on the line that calls it"
        )
    if not isinstance(traced, FunctionType):
        raise ProbeFailed(
            f"{_name(target)} has no Python code to stop in: it is a {type(traced).__name__}\n"
            "  set the probe on the line that calls it"
        )
    if reason := trace_rules.why_not_traced(traced):
        raise ProbeFailed(f"{_name(target)} is never traced: {reason}\n  set the probe on the line that calls it")
    return traced


def _traced(target: Any) -> Any:
    """Unwrap a callable to its innermost function; return classes and callables written in C as they are."""
    import torch

    if isinstance(target, type) and issubclass(target, torch.nn.Module):
        target = getattr(target, "forward")  # noqa: B009 - mypy knows no `forward` of a class
    unwrapped = unwrap(target)
    if unwrapped.module is not None:
        return _traced(unwrapped.module.forward)
    layer = next(layer for layer in unwrapped.layers if layer.wraps_by is None or _is_decorating_object(layer))
    call = function_of(layer.value)
    return layer.value if call is None or isinstance(layer.value, (type, FunctionType)) else _traced(call)


def _is_decorating_object(layer: Layer) -> bool:
    """Return whether a layer is a callable object by which a decorator replaced a function: its `__call__` runs first."""
    return layer.wraps_by == "decorator" and type(layer.value) is not FunctionType


def _name(target: Any) -> str:
    return str(getattr(target, "__qualname__", None) or type(target).__qualname__)


def functions_in(file: str, statement: Statement | None) -> Iterator[FunctionType]:
    """Yield the loaded functions of a file whose code, or code nested in it, contains `statement`; yield all if it is None."""
    for function in gc.get_objects():
        is_in_file = type(function) is FunctionType and real_path(function.__code__.co_filename) == real_path(file)
        if is_in_file and (statement is None or any(_codes_with(function.__code__, statement))):
            yield function


def codes_in(file: str, statement: Statement) -> Iterator[CodeType]:
    """Yield the loaded code objects that contain a statement of a file."""
    for function in functions_in(file, statement):
        yield from _codes_with(function.__code__, statement)


def _codes_with(code: CodeType, statement: Statement) -> Iterator[CodeType]:
    for nested in globals_read.codes_in(code):
        if can_hold(nested, statement) and any(line in statement for _, _, line in nested.co_lines()):
            yield nested
