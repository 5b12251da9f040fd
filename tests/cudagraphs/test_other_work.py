"""CUDA graphs beside other work on the device: devices, failed captures, freed workspaces, graphs of others."""

from __future__ import annotations

import gc
import threading
import warnings

import pytest
import torch
from support.device_work import CYCLES, fast_path, is_filled, randn, recorded_product, split_k, take_memory
from torch import nn

from dynx.errors import DynxWarning, UsageError

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("clean_device")]


# random numbers


class Dropping(nn.Module):
    def __init__(self):
        super().__init__()
        self.dropout = nn.Dropout(0.5)

    def forward(self, x):
        return self.dropout(x)


def fail_by_item(x):
    return x * x.sum().item()


def fail_by_exception(x):
    if torch.cuda.is_current_stream_capturing():
        raise ValueError("no")
    return x * 2


def fail_by_synchronize(x):
    torch.cuda.synchronize()
    return x * 2


def fail(function):
    """Let a capture of this function fail."""
    layer = nn.Identity()
    with pytest.warns(DynxWarning) if function is not fail_by_exception else pytest.raises(ValueError, match="no"):
        run = fast_path(lambda x: layer(function(x)))
        for _ in range(3):
            run(torch.ones(3, device="cuda"))


FAILURES = [fail_by_item, fail_by_exception, fail_by_synchronize]


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("replays_before", [0, 1, 3])
def test_random_numbers_after_a_failed_capture(failure, replays_before):
    x = torch.ones(10_000, device="cuda")
    run = fast_path(Dropping().train(), x)
    for _ in range(replays_before):
        run(x)
    fail(failure)
    masks = [run(x) for _ in range(4)]
    assert not any(torch.equal(masks[0], mask) for mask in masks[1:])
    torch.manual_seed(5)
    first = run(x)
    torch.manual_seed(5)
    assert torch.equal(run(x), first)
    torch.manual_seed(6)
    assert not torch.equal(run(x), first)
    torch.manual_seed(5)
    assert torch.equal(nn.functional.dropout(x, 0.5), first)
    torch.rand(3, device="cuda")  # raises if the generator is taken for one in a capture


def test_random_numbers_of_a_graph_whose_generator_got_another_state():
    x = torch.ones(10_000, device="cuda")
    run = fast_path(Dropping().train(), x)
    generator = torch.cuda.default_generators[0]
    generator.graphsafe_set_state(generator.clone_state())
    masks = [run(x) for _ in range(4)]
    assert not any(torch.equal(masks[0], mask) for mask in masks[1:])


def test_the_current_stream_after_a_failed_capture():
    before = torch.cuda.current_stream()
    for failure in FAILURES:
        fail(failure)
        assert torch.cuda.current_stream() == before


# workspaces


def assert_right_after_workspaces_are_cleared(run, function, operands):
    """Assert that replays give the results of `function`, and write to no memory that others have got meanwhile."""
    torch._C._cuda_clearCublasWorkspaces()
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    taken = take_memory()
    for _ in range(5):
        torch.testing.assert_close(run(*operands), function(*operands))
    torch.cuda.synchronize()
    assert is_filled(taken)


def test_workspaces_that_are_cleared():
    run, function, operands = recorded_product(0)
    run(*operands)
    assert_right_after_workspaces_are_cleared(run, function, operands)


@pytest.mark.parametrize("times", [1, 100])
def test_workspaces_that_are_cleared_during_a_capture(times):
    """The captured product makes a workspace in the memory of its graph, which no later graph may use."""
    layer, cleared = nn.Identity(), []

    def clear():
        torch._C._cuda_clearCublasWorkspaces()
        cleared.append(1)

    def clearing(a, b):
        if torch.cuda.is_current_stream_capturing() and len(cleared) < times:
            thread = threading.Thread(target=clear)
            thread.start()
            thread.join()
        return layer(a @ b)

    first = fast_path(clearing)
    _, operands = split_k(10)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            torch.testing.assert_close(first(*operands), operands[0] @ operands[1])
    assert bool(caught) == (times > 1), "runs uncaptured where each attempt fails"
    run, function, operands = recorded_product(0)
    run(*operands)
    first.close()
    del first
    assert_right_after_workspaces_are_cleared(run, function, operands)


def test_after_many_memory_pools():
    """Ids of pools above 256 are objects that Python may free, which torch's list of their memory does too early."""
    for _ in range(300):
        torch.cuda.graph_pool_handle()
    with torch.cuda.stream(torch.cuda.Stream()):
        for seed in range(20):
            run, function, operands = recorded_product(seed)
            torch.testing.assert_close(run(*operands), function(*operands), rtol=1e-3, atol=1e-3)
            run.close()


def test_beside_graphs_of_reduce_overhead():
    run, function, operands = recorded_product(0)
    model = nn.Sequential(*[nn.Linear(512, 512) for _ in range(3)]).cuda()
    torch._dynamo.reset()
    compiled = torch.compile(model, mode="reduce-overhead")
    for step in range(6):
        compiled(randn(8, 512, seed=step)).sum().backward()
        model.zero_grad(set_to_none=True)
        torch.testing.assert_close(run(*operands), function(*operands))
    torch.cuda.empty_cache()
    taken = take_memory()
    for _ in range(5):
        torch.testing.assert_close(run(*operands), function(*operands))
    assert is_filled(taken)


def test_recordings_of_many_functions_that_are_deleted():
    """The capture streams and their workspaces are used again."""
    before = None
    for seed in range(12):
        run, function, operands = recorded_product(seed)
        torch.testing.assert_close(run(*operands), function(*operands), rtol=1e-3, atol=1e-3)
        run.close()
        del run
        gc.collect()
        torch.cuda.empty_cache()
        if seed == 3:
            before = torch.cuda.memory_reserved()
    assert torch.cuda.memory_reserved() <= before + (1 << 23)


# devices


@pytest.mark.gpu(devices=2)
def test_a_graph_while_another_device_is_current():
    """The driver takes the default stream for that of the current device, which waits for nothing on the other one."""
    layer = nn.Identity()
    x = randn(1 << 20, device="cuda:0")
    run = fast_path(lambda x: layer(x * 2), x)
    run(x)
    for step in range(20):
        with torch.cuda.device(0):
            torch.cuda._sleep(CYCLES // 20)
            y = x + step
        with torch.cuda.device(1):
            result = run(y)
        torch.cuda.synchronize(0)
        assert torch.equal(result, y * 2)


@pytest.mark.gpu(devices=2)
def test_functions_on_two_devices():
    layer = nn.Identity()
    runs = []
    for index in range(2):
        with torch.cuda.device(index):
            runs.append(fast_path(lambda x: layer(x @ x), randn(128, 128, device=f"cuda:{index}")))
    for step in range(10):
        for index, run in enumerate(runs):
            x = randn(128, 128, seed=step, device=f"cuda:{index}")
            torch.testing.assert_close(run(x), x @ x, rtol=1e-3, atol=1e-3)


# other graphs


def test_beside_graphs_of_the_user():
    x, weight = randn(64, 64), randn(64, 64, seed=1)
    static, graph = x.clone(), torch.cuda.CUDAGraph()
    (static @ weight).sum()
    with torch.cuda.graph(graph):
        out = (static @ weight).relu()
    run, function, operands = recorded_product(0)
    layer = nn.Sequential(nn.Linear(64, 64), nn.ReLU()).cuda()
    torch.cuda.make_graphed_callables(layer, (x.clone().requires_grad_(),))
    for step in range(10):
        static.copy_(randn(64, 64, seed=step))
        graph.replay()
        torch.testing.assert_close(out, (static @ weight).relu(), rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(run(*operands), function(*operands), rtol=1e-3, atol=1e-3)
        layer(static).sum().backward()


def test_a_call_in_a_capture_of_the_user():
    run, function, operands = recorded_product(0)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = run(*operands)
    graph.replay()
    torch.testing.assert_close(out, function(*operands), rtol=1e-3, atol=1e-3)


def test_a_usage_error_in_a_call_leaves_the_generator():
    x = torch.ones(10_000, device="cuda")
    run = fast_path(Dropping().train(), x)
    with pytest.raises(UsageError):
        run(torch.ones(3))
    assert not torch.equal(run(x), run(x))
