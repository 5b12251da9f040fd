"""CUDA graphs that are replayed on several streams, and memory that is freed while a stream uses it."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading

import pytest
import torch
from support.device_work import CYCLES, fast_path, is_filled, randn, recorded_product, split_k, take_memory
from torch import nn

from dynx import cudagraphs
from dynx.cudagraphs._runtime.capture_lock import exclusive_capture

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("clean_device")]


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


def test_inputs_are_copied_after_a_replay_on_another_stream_has_read_them():
    layer = nn.Identity()

    def function(x):
        torch.cuda._sleep(CYCLES)
        return layer(x * 2)

    operands = [randn(1 << 16, seed=seed) for seed in range(2)]
    run = fast_path(function, *operands[:1], inputs="copy")
    streams = [torch.cuda.Stream() for _ in operands]
    torch.cuda.synchronize()
    results = []
    for stream, x in zip(streams, operands, strict=True):
        with torch.cuda.stream(stream):
            results.append(run(x))
    torch.cuda.synchronize()
    torch.testing.assert_close(results, [x * 2 for x in operands])
