"""Graphs that read their inputs where a call has them: no copies, the same results; where that is not proven, copies."""

from __future__ import annotations

import pytest
import torch
from cudagraphs_runtimes import NO_GPU, RUNTIMES
from torch import nn

from dynx import cudagraphs
from dynx.cudagraphs._compiled import observers


class Attention(nn.Module):
    def __init__(self, width=64, heads=4):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in self.qkv(x).chunk(3, -1))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(mixed.transpose(1, 2).flatten(2))


def mlp():
    return nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 8))


def convolutions():
    return nn.Sequential(nn.Conv2d(4, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1))


def embedding():
    return nn.Sequential(nn.Embedding(50, 64), Attention())


PATCHED = {
    "mlp": (mlp, lambda: torch.randn(16, 64)),
    "attention": (Attention, lambda: torch.randn(2, 16, 64)),
    "embedding": (embedding, lambda: torch.randint(0, 50, (2, 16))),
}
MODELS = {**PATCHED, "convolutions": (convolutions, lambda: torch.randn(2, 4, 16, 16))}  # cuDNN's kernels, or not


def config(device, **how):
    return cudagraphs.Config(runtime=RUNTIMES[device], inputs="patch", **how)


def halves(model, device):
    torch.manual_seed(0)
    return model().to(device, torch.half if device == "cuda" else torch.float).eval()


def of_kind(x, model, device):
    dtype = next(model.parameters()).dtype if x.is_floating_point() else x.dtype
    return x.to(device, dtype)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("outputs", ["clone", "static"])
def test_nothing_is_copied(device, model, outputs):
    make, example = MODELS[model]
    net = halves(make, device)
    run = torch.compile(net, backend=cudagraphs.backend(config(device, outputs=outputs)))
    with torch.no_grad(), observers.graphs() as heard:
        for _ in range(5):
            x = of_kind(example(), net, device)
            torch.testing.assert_close(run(x), net(x))
    assert cudagraphs.stats().replays == 4
    assert cudagraphs.stats().copies == 0, heard[0].use().notes


@pytest.mark.parametrize("model", PATCHED)
def test_of_a_fast_path(device, model):
    make, example = MODELS[model]
    net = halves(make, device)
    run = cudagraphs.fast_path(net, of_kind(example(), net, device), config=config(device))
    with torch.no_grad():
        for _ in range(5):
            x = of_kind(example(), net, device)
            torch.testing.assert_close(run(x), net(x), rtol=0, atol=0)
    assert (cudagraphs.stats().replays, cudagraphs.stats().copies) == (5, 0)


@pytest.mark.gpu
@NO_GPU
@pytest.mark.parametrize("device", ["cuda"], indirect=True)
@pytest.mark.parametrize("model", MODELS)
def test_of_kernels_of_inductor(device, model):
    make, example = MODELS[model]
    net = halves(make, device)
    run = torch.compile(net, backend=cudagraphs.backend(config(device, inner="inductor")))
    with torch.no_grad():
        for _ in range(5):
            x = of_kind(example(), net, device)
            torch.testing.assert_close(run(x), net(x), rtol=2e-2, atol=2e-2)
    assert cudagraphs.stats().replays == 4
    assert cudagraphs.stats().copies == 0 or model not in PATCHED


def test_several_inputs_in_turn(device):
    def function(x, y):
        return x * 2 + y, y - x

    run = torch.compile(function, backend=cudagraphs.backend(config(device)))
    some = [torch.randn(3, 4, device=device) for _ in range(3)]
    for one, other in ((0, 1), (0, 1), (1, 0), (1, 1), (2, 0), (0, 1)):
        torch.testing.assert_close(run(some[one], some[other]), function(some[one], some[other]))
    assert cudagraphs.stats().copies == 0


def test_inputs_that_lie_between_others(device):
    """Kernels are chosen for memory that is aligned; other inputs are copied."""
    net = halves(mlp, device)
    run = cudagraphs.fast_path(net, of_kind(torch.randn(16, 64), net, device), config=config(device))
    memory = of_kind(torch.randn(16 * 64 + 8), net, device)
    with torch.no_grad():
        for offset in (0, 1, 2, 3, 8, 1):
            x = memory[offset : offset + 16 * 64].view(16, 64)
            torch.testing.assert_close(run(x), net(x))


COPIED = {
    "changes an input": lambda x: x.add_(1) * 2,
    "draws random numbers": lambda x: nn.functional.dropout(x),
    "gives an input back": lambda x: (x, x + 1),
}


@pytest.mark.parametrize("function", COPIED.values(), ids=COPIED)
def test_what_cannot_be_proven_is_copied(device, function):
    run = torch.compile(function, backend=cudagraphs.backend(config(device)))
    for step in range(4):
        x = torch.randn(3, 4, device=device)
        y = x.clone()
        torch.manual_seed(step)
        found = run(x)
        torch.manual_seed(step)
        torch.testing.assert_close((found, x), (function(y), y))
    assert cudagraphs.stats().replays == 3


def test_what_changes_a_buffer_is_not_tried(device):
    """Else recording would count as a batch."""
    norm, other = (nn.BatchNorm1d(4).to(device) for _ in range(2))
    run = torch.compile(norm, backend=cudagraphs.backend(config(device)))
    with torch.no_grad():
        for _ in range(4):
            x = torch.randn(8, 4, device=device)
            torch.testing.assert_close(run(x), other(x))
    torch.testing.assert_close(norm.state_dict(), other.state_dict())


def test_gaps_are_copied(device):
    run = torch.compile(torch.sin, backend=cudagraphs.backend(config(device)))
    for _ in range(4):
        x = torch.randn(4, 6, device=device)[:, ::2]
        torch.testing.assert_close(run(x), x.sin())
    assert cudagraphs.stats().copies == 3


def test_training(device):
    torch.manual_seed(0)
    net = mlp().to(device)
    run = torch.compile(net, backend=cudagraphs.backend(config(device)))
    for _ in range(4):
        x = torch.randn(16, 64, device=device)
        net.zero_grad()
        run(x).square().mean().backward()
        found = [each.grad.clone() for each in net.parameters()]
        net.zero_grad()
        net(x).square().mean().backward()
        torch.testing.assert_close(found, [each.grad for each in net.parameters()])
