"""Reasons of recaptures are what differs, all of it, in the words of the program."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import dynx


def log_of(model, *losses, **options):
    """Capture the backward pass of each loss, which is computed with the model; return the log."""
    torch._dynamo.reset()
    with dynx.autograd.capture(backend=None, **options) as log:
        for loss in losses:
            model.zero_grad()
            loss(model).backward()
    return log


def found(capture):
    return [(reason.kind, reason.subject, reason.before, reason.after) for reason in capture.reasons]


def batch(*shape):
    return lambda model: model(torch.ones(*shape)).sum()


@pytest.mark.parametrize("dynamic", [None, True])
def test_sizes_of_a_compiled_forward_pass_are_no_class(dynamic):
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    run = torch.compile(model, backend="aot_eager", dynamic=True)
    losses = [lambda model, size=size: run(torch.ones(size, 4)).square().sum() for size in (3, 5, 2, 7)]
    log = log_of(model, *losses, dynamic=dynamic)
    assert [reason.kind for capture in log for reason in capture.reasons] == ["first", "shape"][: len(log)]
    assert len(log) == (1 if dynamic else 2)


def test_a_size_within_a_compiled_forward_pass():
    weight = nn.Linear(4, 4, bias=False)
    run = torch.compile(lambda x: (x @ weight.weight).tanh().sum(), backend="aot_eager", dynamic=True)
    with dynx.autograd.capture(backend=None) as log:
        for size in (3, 5, 2):
            weight.zero_grad()
            loss = run(torch.ones(size, 4))
            assert log.would_capture(loss).outcome == ("unknown" if log else "capture")
            loss.backward()
    assert found(log[1]) == [("shape", "size 0 of the compiled forward pass", "3", "5")]


def test_a_size_that_is_dynamic_is_no_reason():
    log = log_of(nn.Flatten(0), *(lambda model, shape=shape: model(leaf(*shape)).sum() for shape in ((2, 7), (2, 9), (1, 5))))
    assert [[reason[1:] for reason in found(capture)] for capture in log[1:]] == [
        [("size 0 of self", "14", "18"), ("size 1 of self", "7", "9")],
        [("size 0 of self", "2", "1")],
    ]


def test_a_size_that_changes_as_a_dynamic_one_does_is_a_reason():
    log = log_of(nn.Flatten(0), *(lambda model, shape=shape: model(leaf(*shape)).sum() for shape in ((7, 4), (4, 4), (5, 5))))
    assert found(log[2]) == [("shape", "size 1 of self", "4", "5")]


def leaf(*shape):
    return torch.ones(*shape, requires_grad=True)


def test_an_index_that_torch_makes_dynamic_is_a_size():
    log = log_of(nn.Tanh(), *(lambda model, index=index: model(leaf(5))[index] for index in range(2, 5)))
    assert len(log) == 2  # torch captures no third value
    assert found(log[1]) == [("shape", "index", "2", "3")]


def test_all_that_differs_is_named():
    model = nn.Linear(4, 4)
    with dynx.watch() as watch, dynx.autograd.capture(backend=None) as log:
        for size in (2, 3):  # without zero_grad()
            model(torch.ones(size, 4)).sum().backward()
    (finding,) = watch.findings
    assert finding.rule == "DX713"
    assert finding.advice.endswith("; also different: size 0 of self 2, then 3")
    assert found(log[1]) == [("grad", ".grad of the parameter", "None", "a tensor"), ("shape", "size 0 of self", "2", "3")]


def test_two_numbers_are_named():
    def powers(first, second):
        return lambda model: model(torch.ones(2, 4)).pow(first).exp().pow(second).sum()

    log = log_of(nn.Linear(4, 4), powers(2, 3), powers(4, 5))
    assert found(log[1]) == [("value", "exponent", "3", "5"), ("value", "exponent", "2", "4")]


def test_negative_numbers_are_those_of_the_program():
    log = log_of(
        nn.Linear(4, 4), *(lambda model, dim=dim: model(torch.ones(2, 4)).softmax(dim).pow(2).sum() for dim in (-1, 0))
    )
    assert found(log[1])[0] == ("value", "dim", "-1", "0")


def test_a_tensor_that_is_absent_has_no_other_dtype():
    weights = torch.ones(4), None
    target = torch.tensor([0, 1])
    losses = [lambda model, weight=weight: F.cross_entropy(model(torch.ones(2, 4)), target, weight) for weight in weights]
    kinds = {(kind, after) for kind, _, _, after in found(log_of(nn.Linear(4, 4), *losses)[1])}
    assert kinds == {("value", "absent")}


def test_an_input_without_a_gradient_is_frozen_only_if_a_parameter_is_no_longer_reached():
    model, x = nn.Linear(4, 4), torch.ones(2, 4)
    log = log_of(model, lambda model: torch.cat([model(x), model(x)]).sum(), lambda model: torch.cat([model(x), x]).sum())
    assert log[1].reason.kind == "structure"
    assert log[1].reason.after == "none: no gradient is needed"


def test_a_parameter_has_the_line_of_this_pass():
    model, x = nn.Linear(4, 4), torch.ones(2, 4)
    earlier = model(x)  # autograd uses its AccumulateGrad nodes again
    log = log_of(model, lambda model: model(x).sum())
    nodes = log[0].nodes
    (line,) = {node.location.line for node in nodes if node.parameter}
    assert line == next(node.location.line for node in nodes if node.short_name == "AddmmBackward0")
    assert earlier.requires_grad
    assert {node.module for node in nodes if node.parameter} == {"Linear"}


def test_a_setting_of_the_program_stays_after_the_block():
    assert not torch.is_anomaly_enabled()
    with dynx.autograd.capture(backend=None):
        torch.autograd.set_detect_anomaly(True)
    assert torch.is_anomaly_enabled()
    torch.autograd.set_detect_anomaly(False)


def test_a_check_in_a_block_is_not_in_its_log():
    model, x = nn.Linear(4, 4), torch.ones(2, 4)

    def step(x):
        model.zero_grad()
        model(x).sum().backward()

    with dynx.autograd.capture(backend=None) as log:
        step(x)
        assert dynx.check(step, x, compiled_autograd=True).ok
    assert (len(log), log[0].calls) == (1, 1)


def test_backward_in_a_compiled_function_is_compiled_as_without_lines():
    def compiles(**options):
        torch._dynamo.reset()
        model, x = nn.Linear(4, 4), torch.ones(2, 4)

        def step(loss):
            loss.backward()

        with dynx.autograd.capture(backend="eager", **options), dynx.watch() as watch:
            run = torch.compile(step, backend="eager")
            for _ in range(2):
                model.zero_grad()
                run(model(x).sum())
        return [each.location.function for each in watch.compiles], [each.kind for each in watch.graph_breaks]

    assert compiles(lines=True) == compiles(lines=False)


def test_no_strict_mark_is_advised_where_backward_passes_are_captured():
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    run = torch.compile(model, backend="aot_eager")
    with dynx.autograd.capture(backend="aot_eager"), dynx.watch(what_if=True) as watch:
        for size in (3, 5):
            model.zero_grad()
            run(torch.ones(size, 4)).square().sum().backward()
    (advice,) = (finding.advice for finding in watch.findings if finding.rule == "DX102")
    assert "maybe_mark_dynamic(input, 0) before the call (proven" in advice
