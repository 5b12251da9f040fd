"""The capture plan of an FX graph: its inputs, its mutations, and why it cannot be captured."""

from __future__ import annotations

import pytest
import torch
from support.configs import compiled

from dynx.cudagraphs._compiled import backend


@pytest.fixture
def plans(monkeypatch):
    """A list of the plans of all graphs that are compiled."""
    plans = []
    make = backend.plan_of

    def plan_of(*args):
        plan, unsafe = make(*args)
        plans.append(plan)
        return plan, unsafe

    monkeypatch.setattr("dynx.cudagraphs._compiled.backend.plan_of", plan_of)
    return plans


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(4)

    def forward(self, x):
        return self.norm(x)


def test_plan_lists_names_and_kinds_of_graph_inputs(plans):
    compiled(Net(), "cpu", dynamic=True)(torch.randn(8, 4))
    forward = next(plan for plan in plans if plan.part == "forward")
    kinds = {graph_input.name: graph_input.kind for graph_input in forward.inputs}
    assert kinds["self.norm.weight"] == kinds["self.norm.running_mean"] == "static"
    assert kinds["x"] == "dynamic"
    assert kinds["x.size()[0]"] == "scalar"


def test_plan_of_a_backward_graph_lists_saved_tensors_and_tangents(plans):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())
    compiled(model, "cpu")(torch.randn(2, 4)).sum().backward()
    forward, backward = plans
    assert forward.user_outputs == 1
    assert {graph_input.kind for graph_input in backward.inputs} == {"managed", "dynamic"}
    assert [graph_input.name for graph_input in backward.inputs if graph_input.kind == "dynamic"] == ["tangents_1"]


MUTATIONS = {
    "in place": lambda x: x.add_(1),
    "through a view": lambda x: x.view(-1)[0].add_(1),
    "in a list": lambda x: torch._foreach_add_([x], 1.0),
    "copy": lambda x: x.copy_(torch.ones(3)),
}


@pytest.mark.parametrize("change", MUTATIONS.values(), ids=MUTATIONS)
def test_plan_marks_mutated_inputs(plans, change):
    def function(x, y):
        change(x)
        return y + x

    with torch.no_grad():
        compiled(function, "cpu")(torch.zeros(3), torch.zeros(3))
    assert [(graph_input.name, graph_input.is_mutated) for graph_input in plans[0].inputs] == [("x", True), ("y", False)]


def test_plan_names_the_user_line_of_an_operator_that_cannot_be_captured(plans):
    def function(x):
        return x.nonzero()  # HERE

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True), pytest.warns(match="runs uncaptured"):
        compiled(function, "cpu")(torch.ones(3))
    (skip,) = plans[0].skips
    assert "returns a size that depends on values" in skip.reason
    assert (skip.location.file, skip.location.line) == (__file__, function.__code__.co_firstlineno + 1)


def test_plan_round_trips_through_plain_data(plans):
    from dynx.records.codec import from_data, to_data

    compiled(torch.nn.Linear(4, 4), "cpu")(torch.randn(2, 4))
    assert from_data(type(plans[0]), to_data(plans[0])) == plans[0]
