"""Outputs that share memory share it after they were copied: a write to one is visible in the others."""

from __future__ import annotations

import pytest
import torch
from support.configs import config_for

from dynx import cudagraphs

FUNCTIONS = {
    "a row": lambda x: (y := x.sin(), y[1]),
    "two rows and another output": lambda x: ((y := x.sin())[0], x.cos(), y[2]),
    "transposed": lambda x: ((y := x.sin()).t(), y),
    "slices": lambda x: ((y := x.sin())[1:, 1:3], y[:, 2]),
    "another dtype": lambda x: ((y := x.sin()).view(torch.uint8), y),
    "many outputs": lambda x: (x + 1, *(x * 2).unbind(), x.cos(), x.exp()),
    "empty": lambda x: ((y := x.sin())[:0], y),
}


def values_after_writes(results):
    """Return the values of all results before and after a write to each of them."""
    actual = [result.tolist() for result in results]
    for result in results:
        result.fill_(3)
        actual += [overlapping.tolist() for overlapping in results]
    return actual


@pytest.fixture(params=[None, "fast_path", "graphed"])
def run(request, device):
    def make(function):
        config = config_for(device)
        if request.param is None:
            return torch.compile(function, backend=cudagraphs.backend(config))
        if request.param == "fast_path":
            return cudagraphs.fast_path(function, unsafe_skip_checks=True, config=config)
        return cudagraphs.graphed(function, (torch.ones(3, 4, device=device),), config=config)

    return make


@pytest.mark.parametrize("name", FUNCTIONS)
def test_writes_to_one_output_are_visible_in_overlapping_outputs(device, run, name):
    call = run(FUNCTIONS[name])
    earlier = []
    for step in range(4):
        x = torch.full((3, 4), step / 4, device=device)
        expected = FUNCTIONS[name](x)
        results = call(x)
        assert [result.stride() for result in results] == [result.stride() for result in expected]
        assert values_after_writes(results) == values_after_writes(expected)
        earlier.append((results, [result.tolist() for result in results]))
    assert [[result.tolist() for result in results] for results, _ in earlier] == [values for _, values in earlier]
    assert cudagraphs.stats().replays > 1


@pytest.mark.parametrize("function", [torch.conj, lambda y: y.mH, lambda y: y.conj().imag, torch.real])
def test_conjugate_and_negative_view_outputs_match_eager(device, run, function):
    call = run(lambda x: ((y := x * (1 + 2j)), function(y)))
    for step in range(3):
        x = torch.full((3, 4), step + 1.0, device=device)
        for result, expected in zip(call(x), (x * (1 + 2j), function(x * (1 + 2j))), strict=True):
            torch.testing.assert_close(result.resolve_conj().resolve_neg(), expected.resolve_conj().resolve_neg())


def test_outputs_that_do_not_overlap_are_copied_separately(device):
    config = config_for(device)
    run = cudagraphs.fast_path(lambda x: ((y := x * 2)[0], y[-1]), unsafe_skip_checks=True, config=config)
    run(torch.ones(1000, 10, device=device))
    for _ in range(3):
        first, last = run(torch.ones(1000, 10, device=device))
        assert first.untyped_storage().nbytes() == last.untyped_storage().nbytes() == 40


@pytest.mark.parametrize("function", ["compiled", "graphed"])
def test_gradients_of_two_inputs_do_not_share_memory(device, function):
    """Autograd keeps the first gradient as `.grad` and accumulates into its memory."""
    config = config_for(device)
    x, y = (torch.ones(3, device=device, requires_grad=True) for _ in range(2))
    if function == "compiled":
        run = torch.compile(torch.add, backend=cudagraphs.backend(config))
    else:
        run = cudagraphs.graphed(torch.add, (x, y), config=config)
    for _ in range(4):
        x.grad = y.grad = None
        run(x, y).sum().backward()
        x.grad.zero_()
        assert y.grad.tolist() == [1.0] * 3


def test_differentiable_outputs_do_not_share_memory(device):
    """Each output has its own version counter, so a write to one does not invalidate what autograd saved of another."""
    config = config_for(device)
    run = cudagraphs.graphed(
        lambda x: ((y := x.sin()), y[1]), (torch.ones(3, 4, device=device, requires_grad=True),), config=config
    )
    for _ in range(3):
        x = torch.ones(3, 4, device=device, requires_grad=True)
        whole, row = run(x)
        row.mul_(2)
        (whole.sum() + row.sum()).backward()
        torch.testing.assert_close(whole, x.sin())
        torch.testing.assert_close(x.grad, x.detach().cos() * torch.tensor([[1.0], [3.0], [1.0]], device=device))


def test_writes_to_one_output_bump_the_version_counter_of_overlapping_outputs(device):
    config = config_for(device)
    run = cudagraphs.fast_path(lambda x: ((y := x.sin()), y[1]), unsafe_skip_checks=True, config=config)
    for _ in range(3):
        whole, row = run(torch.ones(3, 4, device=device))
        weight = torch.ones(3, 4, device=device, requires_grad=True)
        loss = (weight * whole).sum()
        row.add_(100)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
        whole.mul_(weight.detach())
        assert not whole._is_view()
