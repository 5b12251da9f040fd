"""Results that share memory share it after they were copied: what is written to one is there in the others."""

from __future__ import annotations

import pytest
import torch
from cudagraphs_runtimes import RUNTIMES

from dynx import cudagraphs

FUNCTIONS = {
    "a row": lambda x: (y := x.sin(), y[1]),
    "rows apart, and another": lambda x: ((y := x.sin())[0], x.cos(), y[2]),
    "transposed": lambda x: ((y := x.sin()).t(), y),
    "from within": lambda x: ((y := x.sin())[1:, 1:3], y[:, 2]),
    "as bytes": lambda x: ((y := x.sin()).view(torch.uint8), y),
    "many": lambda x: (x + 1, *(x * 2).unbind(), x.cos(), x.exp()),
    "nothing": lambda x: ((y := x.sin())[:0], y),
}


def written(results):
    """Give what results hold before and after each of them was written to."""
    found = [each.tolist() for each in results]
    for each in results:
        each.fill_(3)
        found += [other.tolist() for other in results]
    return found


@pytest.fixture(params=[None, "fast_path", "graphed"])
def run(request, device):
    def make(function):
        config = cudagraphs.Config(runtime=RUNTIMES[device])
        if request.param is None:
            return torch.compile(function, backend=cudagraphs.backend(config))
        if request.param == "fast_path":
            return cudagraphs.fast_path(function, frozen=True, config=config)
        return cudagraphs.graphed(function, (torch.ones(3, 4, device=device),), config=config)

    return make


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_written_to_one_is_in_the_others(device, run, name):
    call = run(FUNCTIONS[name])
    kept = []
    for step in range(4):
        x = torch.full((3, 4), step / 4, device=device)
        expected = FUNCTIONS[name](x)
        results = call(x)
        assert [each.stride() for each in results] == [each.stride() for each in expected]
        assert written(results) == written(expected)
        kept.append((results, [each.tolist() for each in results]))
    assert [[each.tolist() for each in results] for results, _ in kept] == [then for _, then in kept]
    assert cudagraphs.stats().replays > 1


@pytest.mark.parametrize("function", [torch.conj, lambda y: y.mH, lambda y: y.conj().imag, torch.real])
def test_what_is_conjugated_when_it_is_read(device, run, function):
    call = run(lambda x: ((y := x * (1 + 2j)), function(y)))
    for step in range(3):
        x = torch.full((3, 4), step + 1.0, device=device)
        for result, expected in zip(call(x), (x * (1 + 2j), function(x * (1 + 2j))), strict=True):
            torch.testing.assert_close(result.resolve_conj().resolve_neg(), expected.resolve_conj().resolve_neg())


def test_what_lies_apart_is_copied_apart(device):
    config = cudagraphs.Config(runtime=RUNTIMES[device])
    run = cudagraphs.fast_path(lambda x: ((y := x * 2)[0], y[-1]), frozen=True, config=config)
    run(torch.ones(1000, 10, device=device))
    for _ in range(3):
        first, last = run(torch.ones(1000, 10, device=device))
        assert first.untyped_storage().nbytes() == last.untyped_storage().nbytes() == 40


@pytest.mark.parametrize("how", ["compiled", "graphed"])
def test_gradients_are_apart(device, how):
    """Autograd keeps what it is given, and adds to it."""
    config = cudagraphs.Config(runtime=RUNTIMES[device])
    one, other = (torch.ones(3, device=device, requires_grad=True) for _ in range(2))
    if how == "compiled":
        run = torch.compile(torch.add, backend=cudagraphs.backend(config))
    else:
        run = cudagraphs.graphed(torch.add, (one, other), config=config)
    for _ in range(4):
        one.grad = other.grad = None
        run(one, other).sum().backward()
        one.grad.zero_()
        assert other.grad.tolist() == [1.0] * 3


def test_with_gradients(device):
    """Each is one of its own: autograd sees what is written to it, and to nothing else."""
    config = cudagraphs.Config(runtime=RUNTIMES[device])
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


def test_autograd_sees_what_is_written_to_another(device):
    config = cudagraphs.Config(runtime=RUNTIMES[device])
    run = cudagraphs.fast_path(lambda x: ((y := x.sin()), y[1]), frozen=True, config=config)
    for _ in range(3):
        whole, row = run(torch.ones(3, 4, device=device))
        weight = torch.ones(3, 4, device=device, requires_grad=True)
        loss = (weight * whole).sum()
        row.add_(100)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
        whole.mul_(weight.detach())
        assert not whole._is_view()
