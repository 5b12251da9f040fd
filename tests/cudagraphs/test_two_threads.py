"""One thread captures a function that calls a compiled one, while another thread records that one."""

from __future__ import annotations

import queue
import threading
import time

import pytest
import torch
from support.configs import compiled, config_for
from support.models import linear
from support.operators import doubled

from dynx import cudagraphs
from dynx.cudagraphs._runtime.select import select_runtime


def split(device):
    model = linear(device).requires_grad_(False)
    return compiled(lambda x: doubled(model(x).sin().cos()).sin().cos().exp(), device)


def in_place(device):
    return compiled(linear(device), device, gradients="in_place")


@pytest.mark.uncaptured  # the threads end here, or never
@pytest.mark.parametrize("make", [split, in_place])
def test_threads_do_not_wait_for_each_other(device, make):
    """The second thread holds the lock of the compiled function, and waits for the end of the first one's capture."""
    x, run = torch.ones(2, 3, device=device), make(device)
    run(x)  # compiles; the next call is recorded
    is_inside, results = threading.Event(), []

    def outer(_):
        is_inside.set()
        time.sleep(1)  # the other thread waits for the end of this capture now
        return run(x)

    def capture():
        captured = select_runtime(config_for(device)).capture(outer)
        captured.replay()
        results.append(captured)

    def record():
        is_inside.wait(10)
        results.append(run(x))

    threads = [threading.Thread(target=target, daemon=True) for target in (capture, record)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(results) == 2, "the threads wait for each other"


def test_a_replay_while_another_thread_captures(device):
    """Both functions are called on one stream, so their captures share a stream: a replay must not wait for it."""
    model = linear(device).requires_grad_(False)
    x = torch.ones(2, 3, device=device)
    recorded = cudagraphs.fast_path(model, config=config_for(device))
    for _ in range(3):
        recorded(x)
    results = queue.SimpleQueue()  # no list, whose elements would be checked

    def capturing(x):
        y = model(x)
        if cudagraphs.stats().recordings and select_runtime(config_for(device)).is_capturing():
            thread = threading.Thread(target=lambda: results.put(recorded(2 * x_of_thread)))
            thread.start()
            thread.join(30)
        return y.sin()

    x_of_thread = torch.ones(2, 3, device=device)
    other = cudagraphs.fast_path(capturing, config=config_for(device))
    for _ in range(3):
        torch.testing.assert_close(other(x), model(x).sin())
    torch.testing.assert_close(results.get_nowait(), model(2 * x))
    torch.testing.assert_close(recorded(x), model(x))


@pytest.mark.parametrize("gradients", ["autograd", "in_place"])
def test_an_eager_backward_pass_while_another_thread_captures(device, gradients):
    """Captures of two functions share a stream, which the gradient accumulators of the first one must not belong to."""
    trained, x = linear(device), torch.ones(2, 3, device=device)
    run = compiled(trained, device, gradients=gradients)
    for _ in range(3):
        run(x).sum().backward()
    trained.zero_grad()
    threads = []

    def train():
        trained(torch.ones(2, 3, device=device)).sum().backward()

    def capturing(x):
        if select_runtime(config_for(device)).is_capturing():
            threads.append(threading.Thread(target=train))
            threads[-1].start()
            threads[-1].join(30)
        return x.sin()

    captured = select_runtime(config_for(device)).capture(lambda _: capturing(x))
    captured.replay()
    assert len(threads) == 1
    torch.testing.assert_close(trained.weight.grad, torch.full((3, 3), 2.0, device=device))


class Starting(torch.autograd.Function):
    """Calls a function in the backward pass, and gives it time."""

    @staticmethod
    def forward(ctx, x, start):
        ctx.start = start
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        ctx.start()
        time.sleep(0.5)
        return gradient * 2, None


@pytest.mark.slow
def test_backward_passes_are_captured_while_others_wait(device):
    """Torch runs the backward passes of all threads in one: the first waits to be captured, while another is captured."""
    trained, x = linear(device), torch.ones(2, 3, device=device)
    run = compiled(trained, device)
    run(x).sum().backward()  # compiles; the next passes are captured
    out, may_begin = run(x).sum(), threading.Event()

    def train():
        may_begin.wait(30)
        out.backward()

    def start():
        if select_runtime(config_for(device)).is_capturing():
            may_begin.set()

    def both_passes():
        threading.Thread(target=train, daemon=True).start()
        recorded = cudagraphs.graphed(lambda x: Starting.apply(x.sin(), start), (leaf,), config=config_for(device))
        recorded(leaf).sum().backward()

    leaf = torch.ones(3, device=device, requires_grad=True)
    thread = threading.Thread(target=both_passes, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive(), "the threads wait for each other"
    torch.testing.assert_close(leaf.grad, 2 * leaf.cos())


@pytest.mark.gpu
@pytest.mark.parametrize("inputs", ["copy", "memcpy_node", "patch"])
def test_replays_write_to_no_memory_that_another_thread_has_got(inputs, monkeypatch):
    """What another thread allocates on the same stream before a replay is launched is not written to by it."""
    shape, model, blocks = (1 << 16,), torch.nn.Identity(), []
    replay = torch.cuda.CUDAGraph.replay

    def allocate_and_replay(graph):
        blocks.extend(torch.full(shape, 7.0, device="cuda") for _ in range(8))
        replay(graph)

    monkeypatch.setattr(torch.cuda.CUDAGraph, "replay", allocate_and_replay)
    run = cudagraphs.fast_path(lambda x: model(x).sin(), config=cudagraphs.Config(inputs=inputs))
    for _ in range(4):
        x = torch.randn(shape, device="cuda")
        assert bool((run(x) == x.sin()).all())
    assert blocks
    assert all(bool((block == 7).all()) for block in blocks)


@pytest.mark.gpu
def test_replays_of_another_thread_wait_while_patched_pointers_are_verified(monkeypatch):
    """Both graphs may use one cuBLAS workspace, so they must not run at the same time."""
    model, x = torch.nn.Linear(64, 64).cuda().requires_grad_(False), torch.randn(64, 64, device="cuda")
    other = cudagraphs.fast_path(model)
    for _ in range(3):
        other(x)
    results, ended_meanwhile = [], []
    replay = torch.cuda.CUDAGraph.replay

    def call_other():
        with torch.cuda.stream(torch.cuda.Stream()):
            results.append(other(x))

    thread = threading.Thread(target=call_other)

    def replay_while_another_thread_calls(graph):
        if not ended_meanwhile:
            thread.start()
            thread.join(1)
            ended_meanwhile.append(not thread.is_alive())
        replay(graph)

    patched = torch.nn.Linear(64, 64).cuda().requires_grad_(False)
    run = cudagraphs.fast_path(patched, config=cudagraphs.Config(inputs="patch"))
    run(x)
    monkeypatch.setattr(torch.cuda.CUDAGraph, "replay", replay_while_another_thread_calls)
    run(x)
    monkeypatch.undo()
    thread.join()
    torch.cuda.synchronize()
    assert ended_meanwhile == [False]
    torch.testing.assert_close(results[0], model(x))


@pytest.mark.parametrize("make", [compiled, lambda model, device: cudagraphs.fast_path(model, config=config_for(device))])
def test_recordings_are_closed_between_calls_of_another_thread(device, make):
    model, x = linear(device).requires_grad_(False), torch.ones(2, 3, device=device)
    run, expected = make(model, device), model(x)
    results, failures, is_done = [], [], threading.Event()

    def call():
        try:
            with torch.no_grad():
                while not is_done.is_set():
                    results.append(run(x).clone())
        except Exception as error:  # noqa: BLE001 - shown at the end
            failures.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    while len(results) < 60 and thread.is_alive():
        cudagraphs.reset()
        time.sleep(0.002)
    is_done.set()
    thread.join()
    assert not failures
    assert all(bool((result == expected).all()) for result in results)
