"""Fixes that are applied to a process without changing a file: they act, and are gone afterwards."""

from __future__ import annotations

import pytest
import torch

import dynx
from dynx.errors import UsageError
from dynx.fix._experiments import apply, value_of
from dynx.records import Location
from dynx.records.fix import Fix, Mark, rewrite


def recompiles(function, *calls) -> int:
    with dynx.watch() as watch:
        for call in calls:
            function(*call)
    return len(watch.recompiles)


def test_a_statement_runs_at_once():
    with apply([Fix("statement", "torch._dynamo.config.capture_scalar_outputs = True")]):
        assert torch._dynamo.config.capture_scalar_outputs


def test_a_setting_that_torch_lacks_raises():
    with pytest.raises(AttributeError):
        apply([Fix("statement", "torch._dynamo.config.no_such_setting = True")])


def test_an_argument_of_torch_compile_replaces_the_one_that_is_given():
    """A fix that is written into the file replaces `dynamic=False`: a trial that keeps it would show no effect."""
    plain = torch.compile

    def scale(x):
        return x * 2

    sizes = (torch.ones(3),), (torch.ones(4),)
    with apply([Fix("option", "dynamic=True")]):
        assert recompiles(torch.compile(scale, backend="eager"), *sizes) == 0
        torch._dynamo.reset()
        assert recompiles(torch.compile(scale, backend="eager", dynamic=False), *sizes) == 0
    assert torch.compile is plain
    torch._dynamo.reset()
    assert recompiles(torch.compile(scale, backend="eager"), *sizes) == 1


def step(x, batch):
    return x * 2 + batch["ids"].sum()


def test_marks_are_set_where_the_function_is_compiled():
    calls = [(torch.ones(size), {"ids": torch.ones(size + 1)}) for size in (3, 5, 7)]
    location = Location(__file__, step.__code__.co_firstlineno, "step")
    fix = Fix("mark", "", location, None, (Mark("x", 0), Mark("batch['ids']", 0)))
    compiled = torch.compile(step, backend="eager")
    assert recompiles(compiled, *calls) == 1
    torch._dynamo.reset()
    with apply([fix]):
        assert recompiles(compiled, *calls) == 0
    torch._dynamo.reset()
    assert recompiles(compiled, *[(torch.ones(size), {"ids": torch.ones(size + 1)}) for size in (3, 5, 7)]) == 1


def test_dynx_compile_instead_of_torch_compile():
    def make():
        return lambda graph, inputs: graph.forward

    def run_with_new_backends():
        def scale(x):
            return x * 2

        with dynx.watch() as watch:
            for _ in range(3):
                torch.compile(scale, backend=make())(torch.ones(3))
        return len(watch.recompiles)

    assert run_with_new_backends() == 2
    torch._dynamo.reset()
    with apply([Fix("option", "dynx.compile")]):
        assert run_with_new_backends() == 0


def test_a_rewrite_is_no_experiment():
    with pytest.raises(UsageError, match="changes source code, so it cannot be tried here"):
        apply([rewrite("where", Location("a.py", 1, "f"))])


class Holder:
    items = {"a": [1, 2]}


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("x", 1),
        ("L['x']", 1),
        ("holder.items['a'][1]", 2),
        ("gone", None),
        ("holder.items['b']", None),
        ("holder.gone", None),
        ("print('no')", None),
        ("x +", None),
    ],
)
def test_sources_are_read_without_running_code(source, value):
    assert value_of(Mark(source, 0), {"x": 1, "holder": Holder()}) == value
