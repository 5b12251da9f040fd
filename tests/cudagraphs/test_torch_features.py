"""torch features together with CUDA graphs: a test for each row of the table in docs/cudagraphs.md."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from cudagraphs_ranks import Model
from support.agreement import assert_agree, assert_same_grads
from support.configs import compiled, config_for
from support.devices import on_cuda
from torch import nn
from torch.utils.checkpoint import checkpoint

from dynx import cudagraphs

RANKS = Path(__file__).parents[1] / "cudagraphs_ranks.py"


def model_and_twin(device):
    torch.manual_seed(0)
    model = Model().to(device)
    return model, copy.deepcopy(model)


def assert_training_agrees(run, model, plain, twin, device, steps=5):
    for _ in range(steps):
        x = torch.randn(3, 4, device=device)
        for call, module in ((run, model), (plain, twin)):
            module.zero_grad()
            call(x).square().mean().backward()
        assert_same_grads(model, twin)


def counts():
    stats = cudagraphs.stats()
    return stats.recordings, stats.replays


def random_batch(device):
    return lambda: (torch.randn(3, 4, device=device),)


def run_rank(rank, file, device):
    command = [sys.executable, "-X", "faulthandler", RANKS, rank, file, device]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


@pytest.mark.slow
@pytest.mark.uncaptured
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu(devices=2))], indirect=True)
def test_ddp_and_fsdp_training_is_replayed(device, tmp_path):
    """Two processes train on half of each batch; compared with one that trains on all of it."""
    with ThreadPoolExecutor(2) as pool:
        ranks = list(pool.map(run_rank, ("0", "1"), [tmp_path / "meet"] * 2, [device] * 2))
    for rank in ranks:
        assert not rank.returncode, rank.stderr
        actual = json.loads(rank.stdout.splitlines()[-1])
        assert actual["ddp"] == {"recordings": 2, "replays": 14, "moves": 0}
        assert actual["fsdp"]["replays"] == 14


def test_parameters_with_a_new_address_on_every_step_are_copied(device):
    """FSDP may gather parameters to new memory on each step: after some recaptures such parameters are copied."""
    model, twin = model_and_twin(device)
    run, old_data = compiled(model, device), []
    for step in range(8):
        if step:
            old_data.append(model.inner.weight.data)
            model.inner.weight.data = model.inner.weight.data.clone()
        assert_training_agrees(run, model, twin, twin, device, steps=1)
    assert counts() == (8, 14), "forward and backward for three addresses, and one of each that copies"
    moves = cudagraphs.stats().address_changes
    assert {move.name for move in moves} == {"self.inner.weight"}
    assert [move.times for move in moves] == [1, 2, 3]
    assert moves[0].after == moves[1].before
    assert moves[0].location.line > 0


def test_saved_tensor_hooks_that_clone_match_eager(device):
    """Hooks return copies of saved tensors, with new addresses on each call."""
    model, twin = model_and_twin(device)
    inner = compiled(model, device)

    def run(x):
        with torch.autograd.graph.saved_tensors_hooks(torch.clone, torch.clone):
            return inner(x)

    assert_training_agrees(run, model, twin, twin, device, steps=10)
    recordings, replays = counts()
    assert recordings < 10
    assert replays == 18


def test_training_under_autocast_matches_eager(device):
    model, twin = model_and_twin(device)

    def cast(fn):
        def call(x):
            with torch.autocast(device, dtype=torch.bfloat16):
                return fn(x).float()

        return call

    run = compiled(model, device)
    assert_training_agrees(cast(run), model, cast(twin), twin, device)
    assert_training_agrees(run, model, twin, twin, device)
    assert counts() == (4, 16)


def test_training_with_compiled_autograd_matches_eager(device):
    model, twin = model_and_twin(device)
    run, compile = compiled(model, device), compiled
    for _ in range(5):
        x = torch.randn(3, 4, device=device)
        for module in (model, twin):
            module.zero_grad()
        with torch._dynamo.compiled_autograd._enable(lambda gm: compile(gm, device)):
            run(x).square().mean().backward()
        twin(x).square().mean().backward()
        assert_same_grads(model, twin)
    assert counts() == (2, 8)


def test_compiled_exported_program_matches_eager(device):
    model, _ = model_and_twin(device)
    exported = torch.export.export(model, random_batch(device)()).module()
    assert_agree(compiled(exported, device), model, random_batch(device))
    assert_training_agrees(compiled(exported, device), exported, model, model, device)
    assert counts() == (3, 12)


def test_threads_that_train_one_compiled_model_get_their_own_gradients(device):
    model, twin = model_and_twin(device)
    run = compiled(model, device)
    run(torch.randn(3, 4, device=device)).sum().backward()
    barrier = threading.Barrier(3)

    def work(number):
        x = torch.full((3, 4), float(number), device=device)
        barrier.wait()
        for _ in range(10):
            grads = torch.autograd.grad(run(x).square().sum(), list(model.parameters()))
            torch.testing.assert_close(grads, torch.autograd.grad(twin(x).square().sum(), list(twin.parameters())))

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, range(3)))
    assert counts()[1] > 40


@on_cuda
def test_replays_run_on_the_current_stream(device):
    """Outputs of a replay are ready on the current stream without synchronization."""
    model, twin = model_and_twin(device)
    run, streams = compiled(model, device), [torch.cuda.Stream() for _ in range(3)]
    for step in range(9):
        stream = streams[step % 3]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            assert_training_agrees(run, model, twin, twin, device, steps=1)
        torch.cuda.current_stream().wait_stream(stream)
    assert counts() == (2, 16)


def test_operators_on_another_device_split_the_graph(device):
    """Operators on another device run uncaptured, between captured pieces."""
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
    if device == "cuda":  # operators on meta need no skip
        assert next(skip.reason for skip in cudagraphs.stats().skips).endswith("is on cpu")
    assert counts() == (1, 3)


@pytest.mark.gpu(devices=2)
@pytest.mark.parametrize("device", ["cuda"], indirect=True)
@pytest.mark.parametrize("inputs", ["copy", "patch"])
def test_each_of_two_gpus_has_its_own_recordings(device, inputs):
    """Calls replay whichever device is current; `stats().skips` explains a graph that uses both devices."""
    model, twin = model_and_twin(device)
    config = cudagraphs.Config(inputs=inputs)
    run = torch.compile(model, backend=cudagraphs.backend(config))
    for cuda_device in ("cuda:1", "cuda:0"):
        model.to(cuda_device), twin.to(cuda_device)
        assert_training_agrees(run, model, twin, twin, cuda_device)
        assert_agree(run, twin, random_batch(cuda_device))
        fast = cudagraphs.fast_path(
            lambda x: x.sin() + 1, torch.ones(3, device="cuda:0"), unsafe_skip_checks=True, config=config
        )
        assert_agree(fast, lambda x: x.sin() + 1, lambda: (torch.randn(3, device="cuda:0"),))
    across = torch.compile(lambda x, y: (x + 1).sin().cos().to("cuda:1") * y, backend=cudagraphs.backend(config))
    x, y = torch.ones(3, device="cuda:0"), torch.ones(3, device="cuda:1")
    for _ in range(3):
        torch.testing.assert_close(across(x, y), (x + 1).sin().cos().to("cuda:1"))
    assert "is on cuda:1" in cudagraphs.stats().skips[0].reason


def test_tensor_subclass_parameters_match_eager(device):
    """AOTAutograd unwraps tensor subclasses: a parameter that wraps two tensors is two static inputs."""
    from torch.testing._internal.two_tensor import TwoTensor

    model, _ = model_and_twin(device)
    for layer in (model.inner, model.outer):
        layer.weight = nn.Parameter(TwoTensor(layer.weight.detach(), layer.weight.detach() + 1))

    def parts(x):
        result = model(x)
        return result.a, result.b

    run = compiled(model, device)
    assert_agree(lambda x: (run(x).a, run(x).b), parts, random_batch(device))
    assert counts() == (1, 9)


def test_new_nested_tensors_do_not_trigger_a_recapture(device):
    """Every nested tensor has a new nested int, which must not trigger a recapture."""

    def nested(rows):
        parts = [torch.randn(size, 4, device=device) for size in (rows, 2)]
        return torch.nested.nested_tensor(parts, layout=torch.jagged)

    run = compiled(lambda x: x.sin(), device, dynamic=True)
    with torch.no_grad():
        for rows in (3, 3, 3, 5, 5, 3):
            x = nested(rows)
            torch.testing.assert_close(run(x).values(), x.sin().values())
    assert counts() == (2, 5)


def test_training_with_activation_checkpointing_matches_eager(device):
    model, twin = model_and_twin(device)

    def half(model):
        return lambda x: model.outer(checkpoint(lambda y: torch.tanh(model.inner(y)), x, use_reentrant=False))

    assert_training_agrees(compiled(half(model), device), model, half(twin), twin, device)
    assert counts() == (2, 8)


def test_vmap_of_func_grad_matches_eager(device):
    def fn(weight, x):
        return torch.vmap(torch.func.grad(lambda row: (row @ weight).sin().sum()))(x)

    assert_agree(compiled(fn, device), fn, lambda: (torch.randn(4, 2, device=device), torch.randn(3, 4, device=device)))
    assert counts() == (1, 4)


@pytest.mark.slow
def test_compiled_optimizer_step_matches_eager(device):
    model, twin = model_and_twin(device)
    optimizers = [
        torch.optim.AdamW(module.parameters(), lr=0.01, capturable=device == "cuda", foreach=True) for module in (model, twin)
    ]
    step = compiled(optimizers[0].step, device)
    for _ in range(5):
        for param, twin_param in zip(model.parameters(), twin.parameters(), strict=True):
            param.grad = torch.randn_like(param)
            twin_param.grad = param.grad.clone()
        step(), optimizers[1].step()
        torch.testing.assert_close(model.state_dict(), twin.state_dict())
    assert counts()[1] == 4


@pytest.mark.parametrize("inner", ["compiled", "graphed"])
def test_compiled_or_graphed_function_inside_train_step_joins_its_capture(device, inner):
    """The inner function runs as part of the outer capture instead of replaying its own graph."""
    model, twin = model_and_twin(device)
    config = config_for(device)
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
        assert_same_grads(model, twin)
    assert cudagraphs.stats().recordings == apart + 1


@on_cuda
def test_compiled_function_can_be_captured_by_torch_cuda_graph(device):
    model, twin = model_and_twin(device)
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
def test_double_backward_through_a_compiled_function_raises_as_in_torch(device):
    model, _ = model_and_twin(device)
    x = torch.randn(3, 4, device=device, requires_grad=True)
    (gradient,) = torch.autograd.grad(compiled(model, device)(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        gradient.sum().backward()


def test_a_replay_has_a_name_in_profiler_traces(device):
    """With the line of the call for which the graph was recorded."""
    model = nn.Linear(4, 4).to(device)
    run, x = cudagraphs.fast_path(model, config=config_for(device)), torch.ones(2, 4, device=device)
    for _ in range(3):
        run(x)
    with torch.profiler.profile() as profile:
        run(x)
    (name,) = {event.name for event in profile.events() if event.name.startswith("dynx: replay")}
    assert re.fullmatch(
        r"dynx: replay of call graph \d+, recorded at .*test_torch_features.py:\d+ in test_a_replay_has_.*", name
    )


@on_cuda
def test_two_sizes_of_a_kernel_that_triton_tunes_are_recorded(device):
    """The autotuner keeps the best configuration of each size, which is no change of what the function does."""
    from support.triton_kernels import doubled_by_a_tuned_kernel

    layer = nn.Identity()
    run = cudagraphs.fast_path(lambda x: layer(doubled_by_a_tuned_kernel(x)), config=config_for(device, or_error=True))
    for size in (100, 100, 100, 300, 300, 300, 100):
        x = torch.randn(size, device=device)
        assert torch.equal(run(x), x * 2)
    assert cudagraphs.stats().recordings == 2
    assert cudagraphs.stats().replays == 5
