"""The instructions at which statements begin, tested against an oracle that counts executions by rewriting the source."""

from __future__ import annotations

import ast
import functools
import inspect
import sys
import types
from collections import Counter
from pathlib import Path

import corpus
import pytest
import torch

from dynx._bytecode import statements
from dynx._bytecode.inject import with_call
from dynx.comptime import probe

FILE = corpus.__file__
SOURCE = Path(FILE).read_text()


def functions():
    return {function.__name__: function for function in corpus.CORPUS}


def lines_of(function):
    """Return the lines at which statements of a function begin, without its `def` and docstrings."""
    lines, first = inspect.getsourcelines(function)
    body = range(first + 1, first + len(lines))
    return sorted({statement.first for statement in statements.statements(FILE) if statement.first in body})


def line_of(statement):
    return min([statement.lineno, *(decorator.lineno for decorator in getattr(statement, "decorator_list", ()))])


class Count(ast.NodeTransformer):
    """Inserts `_count(line)` before every statement; if several begin on a line, before the first outermost one."""

    def __init__(self, tree):
        self.first = {}  # statement, by line
        for node in ast.walk(tree):  # outer ones come first
            if isinstance(node, ast.stmt):
                self.first.setdefault(line_of(node), node)

    def generic_visit(self, node):
        super().generic_visit(node)
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                setattr(node, name, [node for statement in block for node in self.counted(statement)])
        return node

    def counted(self, statement):
        is_docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if is_docstring or self.first.get(line_of(statement)) is not statement:
            return [statement]
        call = ast.Expr(ast.Call(ast.Name("_count", ast.Load()), [ast.Constant(line_of(statement))], []))
        return [ast.copy_location(call, statement), statement]


@functools.cache
def executions(function):
    """Return how often each statement is executed, by line."""
    counts = Counter()
    tree = ast.parse(SOURCE)
    tree = ast.fix_missing_locations(Count(tree).visit(tree))
    namespace = {"_count": lambda line: counts.update([line]), "__name__": "counted"}
    exec(compile(tree, FILE, "exec"), namespace)
    counts.clear()
    namespace[function.__name__](torch.ones(3))
    counts.update({line: count for line, count in visits(function).items() if is_head(line)})
    return counts


def is_head(line):
    """Return whether a line is that of an `except` or a `case`, where no statement can be inserted."""
    heads = (node for node in ast.walk(ast.parse(SOURCE)) if isinstance(node, (ast.ExceptHandler, ast.match_case)))
    return any(line == (node.pattern if isinstance(node, ast.match_case) else node).lineno for node in heads)


def visits(function):
    """Return how often Python's own tracing reaches each line."""
    counts = Counter()

    def trace(frame, event, _):
        if frame.f_code is function.__code__ and event == "line":
            counts[frame.f_lineno] += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function(torch.ones(3))
    finally:
        sys.settrace(before)
    return counts


CASES = [(name, line) for name, function in functions().items() for line in lines_of(function)]


@pytest.mark.parametrize(("name", "line"), CASES)
def test_call_injected_at_a_statement_runs_once_for_each_execution(name, line):
    function = functions()[name]
    expected = executions(function)[line]
    calls = []
    statement = statements.statement_at(FILE, line)
    code, _ = with_call(function.__code__, "_probe", statement)
    rewritten = types.FunctionType(code, {**vars(corpus), "_probe": lambda: calls.append(1)}, name)
    result = rewritten(torch.ones(3))
    assert torch.equal(result, function(torch.ones(3)))
    assert len(calls) == expected


PROBED = [(name, line, mode) for name, line in CASES for mode in ("hook", "rewrite")]


@pytest.mark.parametrize(("name", "line", "mode"), PROBED)
def test_probe_at_a_statement_fires_once_for_each_execution(name, line, mode):
    function = functions()[name]
    expected = executions(function)[line]
    lines = []
    with probe(f"{FILE}:{line}", do=lambda ctx: lines.append(ctx.location.line), mode=mode) as armed:
        result = torch.compile(function, backend="eager")(torch.ones(3))
    assert torch.equal(result, function(torch.ones(3)))
    assert armed.hits == expected
    assert set(lines) <= {line, line + 1, line + 2}


@pytest.mark.slow
def test_removing_a_rewrite_probe_restores_the_code_object():
    before = {name: function.__code__ for name, function in functions().items()}
    for line in dict(CASES).values():  # one statement of each function
        probe(f"{FILE}:{line}", mode="rewrite").remove()
    assert all(function.__code__ is before[name] for name, function in functions().items())
    assert not [name for name in vars(corpus) if name.startswith("__dynx")]
