"""Random numbers of a state of their own: activation checkpoints with dropout, and generators among the inputs of a graph.

For CUDA, AOTAutograd passes generators to the forward and to the backward graph of a compiled function with checkpoints, so
that the recomputation draws the numbers of the forward pass again.
"""

from __future__ import annotations

import pytest
import torch
from support.configs import compiled, config_for
from torch import nn
from torch.utils.checkpoint import checkpoint

from dynx import cudagraphs
from dynx.cudagraphs._compiled.address_changes import SharedFacts
from dynx.cudagraphs._compiled.runner import Runner
from dynx.cudagraphs._runtime.select import select_runtime
from dynx.errors import DynxWarning
from dynx.records.cudagraphs import GraphInput, GraphPlan

SIZE = 256


def drop(x, w):
    return nn.functional.dropout(x * w, 0.5) * 2


class Checkpointed(nn.Module):
    """Two checkpoints with dropout, one without a checkpoint between them; each keeps about half of the elements."""

    def __init__(self, device):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(SIZE, device=device))

    def forward(self, x):
        first = checkpoint(drop, x[0], self.weight, use_reentrant=False)
        second = checkpoint(drop, x[2], self.weight, use_reentrant=False)
        return torch.stack([first, nn.functional.dropout(x[1], 0.5), second])


class Once(nn.Module):
    def __init__(self, device):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(SIZE, device=device))

    def forward(self, x):
        return checkpoint(drop, x, self.weight, use_reentrant=False)


def ones(device):
    return torch.ones(3, SIZE, device=device, requires_grad=True)


def assert_same_masks(out, x):
    """Assert that the backward pass computed gradients of exactly those elements that the forward pass kept."""
    torch.testing.assert_close(out != 0, x.grad != 0)


def masks_of(run, device, calls=6):
    masks = []
    for _ in range(calls):
        x = ones(device)
        out = run(x)
        out.sum().backward()
        assert_same_masks(out, x)
        masks.append(out != 0)
    return masks


def assert_all_differ(masks):
    assert len({tuple(mask.flatten().tolist()) for mask in masks}) == len(masks)


@pytest.fixture(params=[Checkpointed, Once])
def model(request, device):
    return request.param(device)


def in_place(model, device):
    return compiled(model, device, gradients="in_place")


def graphed(model, device):
    return cudagraphs.graphed(model, (ones(device),), config=config_for(device))


@pytest.mark.parametrize("make", [compiled, in_place, graphed])
def test_checkpoints_draw_the_masks_of_the_forward_pass_again(device, model, make):
    assert_all_differ(masks_of(make(model, device), device))
    assert cudagraphs.stats().recordings == 2
    assert not cudagraphs.stats().skips


@pytest.mark.gpu
def test_checkpoints_that_inductor_compiles():
    model = Checkpointed("cuda")
    assert_all_differ(masks_of(compiled(model, "cuda", inner="inductor"), "cuda"))
    assert cudagraphs.stats().recordings == 2
    assert not cudagraphs.stats().skips


@pytest.mark.parametrize("make", [compiled, in_place, graphed])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_two_forward_passes_before_their_backward_passes(device, model, make, order):
    run = make(model, device)
    for _ in range(4):
        xs = [ones(device), ones(device)]
        outs = [run(x) for x in xs]
        for index in order:
            outs[index].sum().backward()
        for out, x in zip(outs, xs, strict=True):
            assert_same_masks(out, x)


@pytest.mark.parametrize("make", [compiled, graphed])
def test_a_backward_pass_that_runs_twice(device, model, make):
    run = make(model, device)
    for _ in range(4):
        x = ones(device)
        out = run(x)
        out.sum().backward(retain_graph=True)
        assert_same_masks(out, x)
        x.grad = None
        out.sum().backward()
        assert_same_masks(out, x)


@pytest.mark.parametrize("make", [graphed])
def test_masks_follow_the_seed(device, model, make):
    run = make(model, device)
    masks = []
    for _ in range(2):
        torch.manual_seed(5)
        masks += masks_of(run, device, calls=3)
    assert_all_differ(masks[:3])
    for first, second in zip(masks[:3], masks[3:], strict=True):
        torch.testing.assert_close(first, second)


def test_random_numbers_between_the_passes(device, model):
    """Other graphs and eager code draw numbers, and set seeds, between a forward pass and its backward pass."""
    run, other = graphed(model, device), cudagraphs.fast_path(nn.Dropout(0.5), config=config_for(device))
    for seed in range(5):
        x = ones(device)
        out = run(x)
        other(torch.ones(7, device=device))
        torch.rand(5, device=device)
        if seed > 2:
            torch.manual_seed(seed)
        out.sum().backward()
        assert_same_masks(out, x)


class NoisyGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient + torch.rand_like(gradient)


def noisy(x):
    return NoisyGradient.apply(nn.functional.dropout(x, 0.5))


def test_a_backward_pass_that_draws_numbers_of_its_own(device):
    run = cudagraphs.graphed(noisy, (ones(device),), config=config_for(device))
    for seed in range(4):
        grads = []
        for call in (noisy, run):
            x = ones(device)
            torch.manual_seed(seed)
            out = call(x)
            torch.rand(3, device=device)
            out.sum().backward()
            grads.append(x.grad)
        torch.testing.assert_close(*grads)


@pytest.mark.uncaptured
def test_a_backward_pass_that_draws_again_and_also_new_numbers_is_not_captured(device):
    def both(x):
        return NoisyGradient.apply(checkpoint(lambda x: nn.functional.dropout(x, 0.5), x, use_reentrant=False))

    with pytest.warns(DynxWarning, match="runs uncaptured: the backward pass draws random numbers of the forward pass again"):
        run = cudagraphs.graphed(both, (ones(device),), config=config_for(device))
    run(ones(device)).sum().backward()
    assert cudagraphs.stats().replays == 0


class OwnGenerator(nn.Module):
    def __init__(self, device):
        super().__init__()
        self.generator = torch.Generator(device)

    def forward(self, x):
        return x + torch.rand(x.shape, device=x.device, generator=self.generator)


@pytest.mark.uncaptured
def test_a_function_that_draws_from_a_generator_of_its_own_is_not_captured(device):
    model, twin = OwnGenerator(device), OwnGenerator(device)
    run = cudagraphs.fast_path(model, config=config_for(device))
    x = torch.ones(SIZE, device=device)
    torch.testing.assert_close(run(x), twin(x))
    with pytest.warns(DynxWarning, match="draws from a random number generator of its own"):
        torch.testing.assert_close(run(x), twin(x))
    torch.testing.assert_close(run(x), twin(x))


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_checkpoints_of_a_function_that_is_compiled_are_not_captured_from_outside():
    model = Once("cuda")
    with pytest.warns(DynxWarning, match="checkpoint in a compiled function draws from a random number generator of its own"):
        run = cudagraphs.graphed(torch.compile(model, backend="aot_eager"), (ones("cuda"),), config=config_for("cuda"))
    masks_of(run, "cuda")


class Restoring(nn.Module):
    def forward(self, x):
        with torch.random.fork_rng(devices=[0] if x.is_cuda else []):
            return nn.functional.dropout(x, 0.5)


def test_a_function_that_restores_the_state_of_random_numbers(device):
    function = Restoring()
    run = cudagraphs.fast_path(function, config=config_for(device))
    x = torch.ones(SIZE, device=device)
    for seed in (1, 1, 1, 2, 2, 3):
        results = []
        for call in (function, run):
            torch.manual_seed(seed)
            torch.rand(seed, device=device)
            results += [call(x), call(x), torch.rand(3, device=device)]
        torch.testing.assert_close(results[:3], results[3:])


def runner_for(x, **options):
    """A runner of a graph that adds to its first input random numbers of the generator that is its second."""
    config = config_for(x.device.type, **options)
    inputs = GraphInput("x", "dynamic", "", is_fixed=True), GraphInput("generator", "generator", "")
    plan = GraphPlan("inference", inputs, user_outputs=1, is_pure=True)
    return Runner(lambda args: add_noise(*args), plan, config, select_runtime(config), SharedFacts())


def add_noise(x, generator):
    return [x + torch.rand(x.shape, device=x.device, generator=generator)]


@pytest.mark.parametrize("inputs", ["copy", "memcpy_node", "patch"])
def test_a_generator_among_the_inputs_of_a_graph(device, inputs):
    """Each generator has a recording, whose replays advance it, and set its seed."""
    if device == "cuda" and inputs != "copy":
        pytest.importorskip("cuda.bindings", reason="needs cuda-bindings")
    x = torch.zeros(4, device=device)
    run = runner_for(x, inputs=inputs)
    generators, twins = ([torch.Generator(device).manual_seed(seed) for seed in (1, 2)] for _ in range(2))
    for index in (0, 0, 0, 1, 0, 1, 1, 0):
        torch.testing.assert_close(run([x, generators[index]])[0], add_noise(x, twins[index])[0])
    assert len(run.recordings) == 2
    generators[0].manual_seed(7)
    twins[0].manual_seed(7)
    torch.testing.assert_close(run([x, generators[0]])[0], add_noise(x, twins[0])[0])


def test_a_capture_that_fails_leaves_a_generator_as_it_was(device):
    generator, twin = (torch.Generator(device).manual_seed(3) for _ in range(2))
    x = torch.zeros(4, device=device)
    run = runner_for(x)
    for _ in range(3):
        torch.testing.assert_close(run([x, generator])[0], torch.rand(4, device=device, generator=twin))

    def failing(_):
        torch.rand(4, device=device, generator=generator)
        raise KeyError("no")

    with pytest.raises(KeyError):
        select_runtime(config_for(device)).capture(failing, generators=[generator])
    torch.testing.assert_close(torch.rand(4, device=device, generator=generator), torch.rand(4, device=device, generator=twin))
    for _ in range(2):
        torch.testing.assert_close(run([x, generator])[0], torch.rand(4, device=device, generator=twin))
