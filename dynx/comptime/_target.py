"""What a probe is set on: a function, a method, a module class, `"file.py:12"` or `"package.module:qualname"`."""

from __future__ import annotations

import functools
import gc
import inspect
import linecache
import os
import pkgutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from dynx._bytecode import statements
from dynx._bytecode.statements import Statement, can_hold, nearest_line, statement_at
from dynx._bytecode.trail import Code
from dynx._torch.tracing import line_hook, trace_rules
from dynx.errors import ProbeFailed
from dynx.records.location import short_path


@dataclass(frozen=True, slots=True)
class Target:
    """A statement to stop at, or the beginning of a function when `statement` is None."""

    file: str
    function: FunctionType | None  # None: any function of the file
    statement: Statement | None

    @property
    def line(self) -> int:
        if self.statement is not None:
            return self.statement.first
        assert self.function is not None
        return self.function.__code__.co_firstlineno

    @property
    def place(self) -> str:
        return f"{short_path(self.file)}:{self.line}"

    def covers(self, code: CodeType) -> bool:
        """Tell whether code, as the user wrote it, may hold the place."""
        if real_path(code.co_filename) != real_path(self.file):
            return False
        if self.statement is not None:
            return can_hold(code, self.statement)
        return self.function is not None and code is self.function.__code__

    def begins(self, code: Code) -> tuple[int, ...]:
        """Give the instructions of the code at which the statement, or the function, begins."""
        if not self.covers(code.original):
            return ()
        if self.statement is None:
            first = None if code.code is not code.original else statements.entry(line_hook.steps_of(code.code))
            return () if first is None else (first,)  # a function begins once, not in its rest after a break
        return line_hook.shifted(code, statements.beginnings(line_hook.steps_of(code.original), self.statement))


def resolve(target: Any, line: int | None) -> Target:
    """Find what is meant; raises ProbeFailed, with what can be done, where nothing can be."""
    if isinstance(target, str):
        file, colon, rest = target.rpartition(":")
        if colon and rest.isdigit():
            return _at_line(find_file(file, target), None, int(rest))
        target = _by_name(target)
    function = _function(target)
    if line is None:
        return Target(function.__code__.co_filename, function, None)
    return _at_line(function.__code__.co_filename, function, line)


def _at_line(file: str, function: FunctionType | None, line: int) -> Target:
    statement = statement_at(file, line)
    near = nearest_line(file, line)
    if near is None:
        raise ProbeFailed(f"no source of {short_path(file)} can be read, so there is no line {line} to stop at")
    if statement is None:
        raise ProbeFailed(f"there is no code at {short_path(file)}:{line}\n  the nearest is line {near}")
    if function is not None:
        lines, first = inspect.getsourcelines(function)
        if not first <= line < first + len(lines):
            raise ProbeFailed(
                f"line {line} is not in {function.__qualname__}, which is lines {first} to {first + len(lines) - 1} of "
                f"{short_path(file)}\n  lines are those of the file"
            )
        if not can_hold(function.__code__, statement):  # its `def`, signature or decorators
            return Target(file, function, None)
    return Target(file, function, statement)


@functools.cache
def real_path(file: str) -> str:
    """Resolve links, once for each file: every function of the process may be asked for its own."""
    return os.path.realpath(file)


def find_file(name: str, target: str = "") -> str:
    if os.path.isfile(name):
        return os.path.abspath(name)
    if name in linecache.cache:
        return name  # a notebook's cell
    known = [file for file in _module_files() if file.endswith(os.sep + name.lstrip("./"))]
    if len(known) == 1:
        return known[0]
    also = f"; {len(known)} loaded modules end so: {', '.join(known[:3])}" if known else ""
    raise ProbeFailed(
        f"probe({target!r}): there is no file {name}{also}\n  give the path from here, or package.module:function"
    )


def _module_files() -> Iterator[str]:
    for module in tuple(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str):
            yield os.path.realpath(file)


def _by_name(name: str) -> Any:
    if ":" not in name:
        raise ProbeFailed(f'probe({name!r}): write "file.py:12" or "package.module:function"')
    try:
        return pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ProbeFailed(f"probe({name!r}): {type(error).__name__}: {error}") from None


def _function(target: Any) -> FunctionType:
    """Find the Python function that Dynamo would trace. Raises ProbeFailed where there is none."""
    found = _unwrapped(target)
    if trace_rules.is_disabled(target):
        raise ProbeFailed(f"{_name(target)} is never traced: it is under torch.compiler.disable")
    if not isinstance(found, FunctionType):
        raise ProbeFailed(
            f"{_name(target)} has no Python code to stop in: it is a {type(found).__name__}\n"
            "  set the probe on the line that calls it"
        )
    if reason := trace_rules.why_not_traced(found):
        raise ProbeFailed(f"{_name(target)} is never traced: {reason}\n  set the probe on the line that calls it")
    return found


def _unwrapped(target: Any) -> Any:
    import torch

    if isinstance(target, torch.nn.Module):
        return _unwrapped(vars(target).get("forward") or type(target))
    if isinstance(target, type) and issubclass(target, torch.nn.Module):
        return _unwrapped(getattr(target, "forward"))  # noqa: B009 - mypy knows no forward of a type
    if isinstance(target, functools.partial):
        return _unwrapped(target.func)
    if isinstance(target, MethodType):
        return _unwrapped(target.__func__)
    if isinstance(target, (staticmethod, classmethod)):
        return _unwrapped(target.__func__)
    inner = getattr(target, "_torchdynamo_orig_callable", None)  # what torch.compile was given
    if inner is not None:
        return _unwrapped(inner)
    if isinstance(target, FunctionType):
        return inspect.unwrap(target)
    if isinstance(target, (type, ModuleType)):
        return target
    call = inspect.getattr_static(type(target), "__call__", None)
    return _unwrapped(call) if isinstance(call, FunctionType) else target


def _name(target: Any) -> str:
    return str(getattr(target, "__qualname__", None) or type(target).__qualname__)


def functions_in(file: str, statement: Statement | None) -> Iterator[FunctionType]:
    """Find the loaded functions of a file that hold a statement, in their own code or in a function within."""
    for each in gc.get_objects():
        is_there = type(each) is FunctionType and real_path(each.__code__.co_filename) == real_path(file)
        if is_there and (statement is None or any(_codes_with(each.__code__, statement))):
            yield each


def codes_in(file: str, statement: Statement) -> Iterator[CodeType]:
    """Find the loaded code objects that hold a statement of a file."""
    for function in functions_in(file, statement):
        yield from _codes_with(function.__code__, statement)


def _codes_with(code: CodeType, statement: Statement) -> Iterator[CodeType]:
    if can_hold(code, statement) and any(line in statement for _, _, line in code.co_lines()):
        yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes_with(constant, statement)
