"""CUDA graphs beside other work on the device: streams, devices, failed captures, freed workspaces, graphs of others."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import warnings

import pytest
import torch
from torch import nn

from dynx import cudagraphs
from dynx.cudagraphs._runtime.capture_lock import exclusive_capture
from dynx.errors import DynxWarning, UsageError

pytestmark = pytest.mark.gpu

CYCLES = 200_000_000  # of `torch.cuda._sleep`: about a tenth of a second


@pytest.fixture(autouse=True)
def clean():
    cudagraphs.reset()
    torch.cuda.synchronize()
    yield
    cudagraphs.reset()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


def randn(*shape, seed=0, device="cuda"):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(device)


def fast_path(fn, *examples, **options):
    return cudagraphs.fast_path(fn, *examples, config=cudagraphs.Config(**options))


def take_memory(megabytes=256, value=7.0):
    """Allocate what others have freed, and fill it."""
    return [torch.full((1 << 18,), value, device="cuda") for _ in range(megabytes)]


def is_filled(blocks, value=7.0):
    return all(bool((block == value).all()) for block in blocks)


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


def split_k(seed):
    """Return a product that cuBLAS computes with its workspace, and its operands."""
    return (lambda a, b: a @ b), (randn(64, 8192, seed=seed), randn(8192, 64, seed=seed + 1))


def recorded_product(seed):
    function, operands = split_k(seed)
    layer = nn.Identity()
    return fast_path(lambda a, b: layer(function(a, b)), *operands), function, operands


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


def test_two_functions_on_two_streams():
    functions = [recorded_product(seed) for seed in (0, 10)]
    expected = [function(*operands) for _, function, operands in functions]
    streams = [torch.cuda.Stream() for _ in functions]
    torch.cuda.synchronize()
    wrong = 0
    for _ in range(100):
        results = []
        for stream, (run, _, operands) in zip(streams, functions, strict=True):
            with torch.cuda.stream(stream):
                results.append([run(*operands) for _ in range(3)])
        torch.cuda.synchronize()
        wrong += not all(
            torch.allclose(result, right, rtol=1e-3, atol=1e-3)
            for side, right in zip(results, expected, strict=True)
            for result in side
        )
    assert wrong == 0


def test_one_function_on_two_streams():
    run, function, _ = recorded_product(0)
    operands = [split_k(seed)[1] for seed in range(4)]
    expected = [function(*pair) for pair in operands]
    streams = [torch.cuda.Stream() for _ in range(2)]
    torch.cuda.synchronize()
    for _ in range(30):
        results = []
        for number, pair in enumerate(operands):
            with torch.cuda.stream(streams[number % 2]):
                results.append(run(*pair))
        torch.cuda.synchronize()
        torch.testing.assert_close(results, expected, rtol=1e-3, atol=1e-3)


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


# streams


@pytest.mark.parametrize("is_recorded", [False, True])
def test_a_result_is_freed_while_its_stream_reads_it(is_recorded):
    layer = nn.Identity()
    run = fast_path(lambda x: layer(x + 1)) if not is_recorded else fast_path(lambda x: layer(x + 1), randn(1 << 20))
    stream, kept = torch.cuda.Stream(), torch.empty(1 << 20, device="cuda")
    x, other = torch.zeros(1 << 20, device="cuda"), torch.full((1 << 20,), 5.0, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        result = run(x)
        torch.cuda._sleep(CYCLES)
        kept.copy_(result)
        del result
    run(other * 1)
    fast_path(lambda x: layer(x + 2))(other)
    torch.cuda.synchronize()
    assert bool((kept == 1).all())


@pytest.mark.parametrize("end", ["close", "reset", "delete"])
def test_a_function_ends_while_another_stream_replays_it(end):
    layer = nn.Identity()
    x = randn(1 << 20)

    def function(x):
        for _ in range(20):
            x = x * 1.01
        return layer(x)

    run = fast_path(function, x)
    stream, expected = torch.cuda.Stream(), function(x)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(CYCLES)
        result = run(x)
    if end == "close":
        run.close()
    elif end == "reset":
        cudagraphs.reset()
    else:
        del run
        gc.collect()
    torch.cuda.empty_cache()
    taken = take_memory(64)
    torch.cuda.synchronize()
    torch.testing.assert_close(result, expected)
    assert is_filled(taken)


def test_inputs_that_are_freed_with_the_function():
    layer = nn.Identity()
    x = randn(1 << 20)
    run = fast_path(lambda x: layer(x * 2), x, inputs="copy")
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(CYCLES)
        result = run(x)
    del run
    gc.collect()
    taken = [torch.full((1 << 20,), 7.0, device="cuda") for _ in range(16)]
    torch.cuda.synchronize()
    torch.testing.assert_close(result, x * 2)
    assert is_filled(taken)


def test_inputs_that_are_freed_while_another_thread_captures():
    layer = nn.Identity()
    x = randn(1 << 20)
    run = fast_path(lambda x: layer(x * 2), x, inputs="copy")
    stream, begin, end = torch.cuda.Stream(), threading.Event(), threading.Event()

    def capture():
        with exclusive_capture():  # graphs are destroyed later, so that nothing waits for their replays now
            begin.set()
            end.wait()

    thread = threading.Thread(target=capture)
    thread.start()
    begin.wait()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(CYCLES)
        result = run(x)
    del run
    taken = [torch.full((1 << 20,), 7.0, device="cuda") for _ in range(16)]
    end.set()
    thread.join()
    torch.cuda.synchronize()
    torch.testing.assert_close(result, x * 2)
    assert is_filled(taken)


@pytest.mark.slow
def test_functions_that_end_where_memory_is_unmapped_without_waiting():
    """`cudaFree` waits for the device, but torch unmaps expandable segments when their own stream has ended."""
    environment = os.environ | {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:benchmark",
        __file__,
        "-k",
        "function_ends",
    ]
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stdout + process.stderr


def test_training_from_two_streams():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)).cuda()
    twin = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)).cuda()
    twin.load_state_dict(model.state_dict())
    run = cudagraphs.graphed(model, (randn(64, 256),))
    streams = [torch.cuda.Stream() for _ in range(2)]
    torch.cuda.synchronize()
    for step in range(20):
        x = randn(64, 256, seed=step)
        torch.cuda.synchronize()
        with torch.cuda.stream(streams[step % 2]):
            run(x).square().mean().backward()
        torch.cuda.synchronize()
        twin(x).square().mean().backward()
    for mine, other in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-3, atol=1e-4)


def test_calls_from_threads_with_streams_of_their_own():
    run, function, operands = recorded_product(0)
    expected, wrong = function(*operands), []

    def work(seed):
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(50):
                result = run(*operands)
                torch.cuda.current_stream().synchronize()
                if not torch.allclose(result, expected, rtol=1e-3, atol=1e-3):
                    wrong.append(seed)

    torch.cuda.synchronize()
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


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
