"""What torch.compile is used together with: a test for each row of the table in docs/cudagraphs.md."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from cudagraphs_ranks import Model
from cudagraphs_runtimes import NO_GPU, RUNTIMES, TWO_GPUS
from torch import nn
from torch.utils.checkpoint import checkpoint

from dynx import cudagraphs

RANKS = Path(__file__).parents[1] / "cudagraphs_ranks.py"


def twins(device):
    torch.manual_seed(0)
    model = Model().to(device)
    return model, copy.deepcopy(model)


def compiled(fn, device, **options):
    return torch.compile(fn, backend=cudagraphs.backend(cudagraphs.Config(runtime=RUNTIMES[device])), **options)


def agree(run, plain, make, calls=5):
    with torch.no_grad():
        for _ in range(calls):
            args = make()
            torch.testing.assert_close(run(*args), plain(*args))


def train_alike(run, model, plain, twin, device, steps=5):
    for _ in range(steps):
        x = torch.randn(3, 4, device=device)
        for call, each in ((run, model), (plain, twin)):
            each.zero_grad()
            call(x).square().mean().backward()
        for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, theirs.grad)


def counted():
    stats = cudagraphs.stats()
    return stats.recordings, stats.replays


def some(device):
    return lambda: (torch.randn(3, 4, device=device),)


def run_rank(rank, file, device):
    command = [sys.executable, "-X", "faulthandler", RANKS, rank, file, device]
    return subprocess.run(command, capture_output=True, text=True, timeout=240)


@pytest.mark.uncaptured
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, TWO_GPUS])], indirect=True)
def test_ddp_and_fsdp(device, tmp_path):
    """Two processes with a half of the data each, against one with all of it."""
    with ThreadPoolExecutor(2) as pool:
        ranks = list(pool.map(run_rank, ("0", "1"), [tmp_path / "meet"] * 2, [device] * 2))
    for each in ranks:
        assert not each.returncode, each.stderr
        found = json.loads(each.stdout.splitlines()[-1])
        assert found["ddp"] == {"recordings": 2, "replays": 14, "moves": 0}
        assert found["fsdp"]["replays"] == 14


def test_parameters_that_are_gathered_somewhere_else_for_each_step(device):
    """As FSDP may: after some places they are copied, and need no recording for each."""
    model, twin = twins(device)
    run, kept = compiled(model, device), []
    for step in range(8):
        if step:
            kept.append(model.inner.weight.data)
            model.inner.weight.data = model.inner.weight.data.clone()
        train_alike(run, model, twin, twin, device, steps=1)
    assert counted() == (8, 14), "three places in both passes, and one for all that follow"
    moves = cudagraphs.stats().moves
    assert {each.name for each in moves} == {"self.inner.weight"}
    assert [each.times for each in moves] == [1, 2, 3]
    assert moves[0].after == moves[1].before
    assert moves[0].location.line > 0


def test_hooks_on_saved_tensors(device):
    """They hand copies to the backward pass, which lie somewhere else each time."""
    model, twin = twins(device)
    inner = compiled(model, device)

    def run(x):
        with torch.autograd.graph.saved_tensors_hooks(torch.clone, torch.clone):
            return inner(x)

    train_alike(run, model, twin, twin, device, steps=10)
    recordings, replays = counted()
    assert recordings < 10
    assert replays == 18


def test_autocast(device):
    model, twin = twins(device)

    def cast(fn):
        def call(x):
            with torch.autocast(device, dtype=torch.bfloat16):
                return fn(x).float()

        return call

    run = compiled(model, device)
    train_alike(cast(run), model, cast(twin), twin, device)
    train_alike(run, model, twin, twin, device)
    assert counted() == (4, 16)


def test_compiled_autograd(device):
    model, twin = twins(device)
    run, compile = compiled(model, device), compiled
    for _ in range(5):
        x = torch.randn(3, 4, device=device)
        for each in (model, twin):
            each.zero_grad()
        with torch._dynamo.compiled_autograd._enable(lambda gm: compile(gm, device)):
            run(x).square().mean().backward()
        twin(x).square().mean().backward()
        for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, theirs.grad)
    assert counted() == (2, 8)


def test_exported_programs(device):
    model, _ = twins(device)
    exported = torch.export.export(model, some(device)()).module()
    agree(compiled(exported, device), model, some(device))
    train_alike(compiled(exported, device), exported, model, model, device)
    assert counted() == (3, 12)


def test_threads_that_train(device):
    model, twin = twins(device)
    run = compiled(model, device)
    run(torch.randn(3, 4, device=device)).sum().backward()
    barrier = threading.Barrier(3)

    def work(number):
        x = torch.full((3, 4), float(number), device=device)
        barrier.wait()
        for _ in range(10):
            mine = torch.autograd.grad(run(x).square().sum(), list(model.parameters()))
            torch.testing.assert_close(mine, torch.autograd.grad(twin(x).square().sum(), list(twin.parameters())))

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, range(3)))
    assert counted()[1] > 40


@pytest.mark.gpu
@NO_GPU
@pytest.mark.parametrize("device", ["cuda"], indirect=True)
def test_streams(device):
    """Where a call is made decides where it runs: results are there on that stream, without waiting for others."""
    model, twin = twins(device)
    run, streams = compiled(model, device), [torch.cuda.Stream() for _ in range(3)]
    for step in range(9):
        stream = streams[step % 3]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            train_alike(run, model, twin, twin, device, steps=1)
        torch.cuda.current_stream().wait_stream(stream)
    assert counted() == (2, 16)


def test_a_second_device_is_told(device):
    """What is elsewhere runs as it is, between pieces that are captured."""
    other = "cpu" if device == "cuda" else "meta"

    def fn(x):
        y = ((x + 1).sin() * 2).cos()
        z = y.to(other) + 1
        return y, z

    run = compiled(fn, device)
    for _ in range(4):
        x = torch.randn(3, device=device)
        y, z = run(x)
        torch.testing.assert_close(y, fn(x)[0])
        assert z.device.type == other
    if device == "cuda":  # nothing is done on meta
        assert next(each.reason for each in cudagraphs.stats().skips).endswith("is on cpu")
    assert counted() == (1, 3)


@pytest.mark.gpu
@TWO_GPUS
@pytest.mark.parametrize("device", ["cuda"], indirect=True)
@pytest.mark.parametrize("inputs", ["copy", "patch"])
def test_two_gpus(device, inputs):
    """Each has its recordings, whichever is the current one; where they meet in one graph, it is told."""
    model, twin = twins(device)
    config = cudagraphs.Config(inputs=inputs)
    run = torch.compile(model, backend=cudagraphs.backend(config))
    for place in ("cuda:1", "cuda:0"):
        model.to(place), twin.to(place)
        train_alike(run, model, twin, twin, place)
        agree(run, twin, some(place))
        fast = cudagraphs.fast_path(lambda x: x.sin() + 1, torch.ones(3, device="cuda:0"), frozen=True, config=config)
        agree(fast, lambda x: x.sin() + 1, lambda: (torch.randn(3, device="cuda:0"),))
    across = torch.compile(lambda x, y: (x + 1).sin().cos().to("cuda:1") * y, backend=cudagraphs.backend(config))
    x, y = torch.ones(3, device="cuda:0"), torch.ones(3, device="cuda:1")
    for _ in range(3):
        torch.testing.assert_close(across(x, y), (x + 1).sin().cos().to("cuda:1"))
    assert "is on cuda:1" in cudagraphs.stats().skips[0].reason


def test_subclasses_of_tensors(device):
    """They are taken apart before a graph is compiled: parameters that hold two tensors are two static inputs."""
    from torch.testing._internal.two_tensor import TwoTensor

    model, _ = twins(device)
    for each in (model.inner, model.outer):
        each.weight = nn.Parameter(TwoTensor(each.weight.detach(), each.weight.detach() + 1))

    def parts(x):
        result = model(x)
        return result.a, result.b

    run = compiled(model, device)
    agree(lambda x: (run(x).a, run(x).b), parts, some(device))
    assert counted() == (1, 9)


def test_nested_tensors(device):
    """Each has a number of its own, which is no reason for another recording."""

    def nested(rows):
        each = [torch.randn(size, 4, device=device) for size in (rows, 2)]
        return torch.nested.nested_tensor(each, layout=torch.jagged)

    run = compiled(lambda x: x.sin(), device, dynamic=True)
    with torch.no_grad():
        for rows in (3, 3, 3, 5, 5, 3):
            x = nested(rows)
            torch.testing.assert_close(run(x).values(), x.sin().values())
    assert counted() == (2, 5)


def test_checkpointed_activations(device):
    model, twin = twins(device)

    def half(model):
        return lambda x: model.outer(checkpoint(lambda y: torch.tanh(model.inner(y)), x, use_reentrant=False))

    train_alike(compiled(half(model), device), model, half(twin), twin, device)
    assert counted() == (2, 8)


def test_function_transforms(device):
    def fn(weight, x):
        return torch.vmap(torch.func.grad(lambda row: (row @ weight).sin().sum()))(x)

    agree(compiled(fn, device), fn, lambda: (torch.randn(4, 2, device=device), torch.randn(3, 4, device=device)))
    assert counted() == (1, 4)


def test_an_optimizer_that_is_compiled(device):
    model, twin = twins(device)
    optimizers = [
        torch.optim.AdamW(each.parameters(), lr=0.01, capturable=device == "cuda", foreach=True) for each in (model, twin)
    ]
    step = compiled(optimizers[0].step, device)
    for _ in range(5):
        for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
            mine.grad = torch.randn_like(mine)
            theirs.grad = mine.grad.clone()
        step(), optimizers[1].step()
        torch.testing.assert_close(model.state_dict(), twin.state_dict())
    assert counted()[1] == 4


@pytest.mark.parametrize("inner", ["compiled", "graphed"])
def test_one_inside_of_another(device, inner):
    """What is captured anyway is not captured apart."""
    model, twin = twins(device)
    config = cudagraphs.Config(runtime=RUNTIMES[device])
    x = torch.randn(3, 4, device=device)
    run = compiled(model, device) if inner == "compiled" else cudagraphs.graphed(model, (x,), config=config)
    apart = cudagraphs.stats().recordings
    step = cudagraphs.train_step(lambda x: run(x).square().mean(), model.parameters(), config=config)
    for _ in range(4):
        x = torch.randn(3, 4, device=device)
        twin.zero_grad()
        loss = twin(x).square().mean()
        loss.backward()
        torch.testing.assert_close(step(x), loss.detach())
        for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, theirs.grad)
    assert cudagraphs.stats().recordings == apart + 1


@pytest.mark.gpu
@NO_GPU
@pytest.mark.parametrize("device", ["cuda"], indirect=True)
def test_graphs_that_are_captured_by_hand(device):
    model, twin = twins(device)
    run, x = compiled(model, device), torch.randn(3, 4, device=device)
    with torch.no_grad():
        for _ in range(3):
            run(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = run(x)
        x.copy_(torch.randn(3, 4, device=device))
        graph.replay()
        torch.testing.assert_close(result, twin(x))


@pytest.mark.uncaptured
def test_gradients_of_gradients_are_refused_as_by_torch(device):
    model, _ = twins(device)
    x = torch.randn(3, 4, device=device, requires_grad=True)
    (gradient,) = torch.autograd.grad(compiled(model, device)(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        gradient.sum().backward()
