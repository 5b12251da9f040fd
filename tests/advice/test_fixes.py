"""What can be tried for a finding: the fixes that findings of small programs list."""

from __future__ import annotations

import pytest
import torch

import dynx


def fixes_of(function, *calls, **options) -> dict[str, list[str]]:
    """Compile a function, call it, and return the code of the fixes by rule."""
    compiled = torch.compile(function, backend="eager", **options)
    with dynx.watch() as watch:
        for call in calls:
            compiled(*call)
    return {finding.rule: [fix.code for fix in finding.fixes] for finding in watch.findings}


def test_a_size():
    found = fixes_of(lambda x: x * 2, (torch.ones(3),), (torch.ones(4),))
    assert found == {
        "DX102": [
            "mark_dynamic(x, 0)",
            "maybe_mark_dynamic(x, 0)",
            "dynamic=True",
        ]
    }


def test_marks_are_for_the_first_call_and_for_that_of_the_recompile():
    """The graph that is compiled first has to be dynamic; its call may be one that cannot be changed."""
    with dynx.watch() as watch:
        compiled = torch.compile(lambda x: x * 2, backend="eager")
        compiled(torch.ones(3))
        compiled(torch.ones(4))
    (finding,) = watch.findings
    last = finding.called_from.line
    assert [(fix.code, fix.called_from.line) for fix in finding.fixes if fix.kind == "mark"] == [
        ("mark_dynamic(x, 0)", last - 1),
        ("mark_dynamic(x, 0)", last),
        ("maybe_mark_dynamic(x, 0)", last - 1),
        ("maybe_mark_dynamic(x, 0)", last),
    ]


def test_nothing_is_tried_for_a_size_of_1():
    """Dynamic sizes are 2 or more, and 1 has code of its own."""
    with dynx.watch() as watch:
        compiled = torch.compile(lambda x: x * 2, backend="eager", dynamic=True)
        for size in (3, 1):
            compiled(torch.ones(size))
    (finding,) = watch.findings
    assert finding.advice.startswith("size 1 compiles on its own: one recompile is expected")
    assert finding.fixes == ()


def test_sizes_that_change_together_are_marked_together():
    with dynx.watch() as watch:
        compiled = torch.compile(lambda x, y: x + y, backend="eager")
        for size in (3, 4):
            compiled(torch.ones(size, 2), torch.ones(size, 2))
    (finding,) = watch.findings
    assert [(mark.source, mark.dim) for mark in finding.fixes[0].marks] == [("x", 0), ("y", 0)]
    assert finding.fixes[0].called_from.line == finding.called_from.line


def test_a_number():
    found = fixes_of(lambda x, n: x * n, (torch.ones(3), 3), (torch.ones(3), 4))
    assert found["DX114"][0] == "dynamic=True"
    assert found["DX114"][-1] == "pass a tensor"


class Counter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.step = 0

    def forward(self, x):
        self.step += 1
        return x * self.step


def test_an_int_of_a_module():
    (codes,) = fixes_of(Counter(), *[(torch.ones(3),)] * 3).values()
    assert codes[0] == "torch._dynamo.config.allow_unspec_int_on_nn_module = True"
    assert codes[-1] == "a tensor as self.step"


@pytest.mark.parametrize("values", [8, 12])
def test_a_higher_limit_is_offered_only_where_the_advice_names_it(values):
    def select(x, name):
        return x * len(name)

    found = fixes_of(select, *[(torch.ones(3), "n" * count) for count in range(1, values + 2)])
    (codes,) = found.values()
    assert ("torch._dynamo.config.recompile_limit = 32" in codes) == ("DX301" in found)


def printed(x):
    print("one", end="")
    return x


def branched(x):
    return x if x.sum() > 0 else -x


def read(x):
    return x * x.sum().item()


@pytest.mark.parametrize(
    ("function", "rule", "first"),
    [
        (printed, "DX201", "torch._dynamo.config.reorderable_logging_functions.add(print)"),
        (branched, "DX203", "torch.where instead of if"),
        (read, "DX202", "torch._dynamo.config.capture_scalar_outputs = True"),
        (lambda x: x[x > 0], "DX209", "torch._dynamo.config.capture_dynamic_output_shape_ops = True"),
    ],
)
def test_graph_breaks(function, rule, first):
    assert fixes_of(function, (torch.ones(3),))[rule][0] == first
