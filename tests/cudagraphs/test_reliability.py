"""What goes wrong leaves a working program and a named reason, and memory is given back."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest
import torch
from cudagraphs_runtimes import NO_GPU, RUNTIMES

from dynx import cudagraphs
from dynx.errors import DynxWarning, UsageError

MEGABYTE = 2**20


def config(device, **how):
    return cudagraphs.Config(runtime=RUNTIMES[device], **how)


def model_of(device, width=8):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.GELU(), torch.nn.Linear(width, width)).to(device)


class InSecond:
    """Does something in the second call, which is the capture, and only there."""

    def __init__(self, model, what):
        self.model, self.what, self.calls = model, what, 0

    def __call__(self, x):
        self.calls += 1
        if self.calls == 2:
            self.what(x)
        return self.model(x)


def run_of(device, what):
    return cudagraphs.fast_path(InSecond(model_of(device), what), frozen=True, config=config(device))


def agree(run, model, device, calls=3):
    with torch.no_grad():
        for _ in range(calls):
            x = torch.randn(3, 8, device=device)
            torch.testing.assert_close(run(x), model(x))


def out_of_memory(x):
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 3 GiB")


def reads(x):
    x.sum().item()


@pytest.mark.uncaptured
@pytest.mark.parametrize(("what", "why"), [(out_of_memory, "out of memory"), (reads, "did not capture|reads a value")])
def test_a_capture_that_fails_leaves_a_path_that_works(device, what, why):
    run = run_of(device, what)
    run(torch.ones(3, 8, device=device))
    with pytest.warns(DynxWarning, match=why):
        run(torch.ones(3, 8, device=device))
    agree(run, model_of(device), device)
    assert cudagraphs.stats().replays == 0
    assert cudagraphs.stats().skips[0].reason


def test_an_exception_of_the_program_is_the_programs(device):
    def fail(x):
        raise ValueError("of the program")

    run = run_of(device, fail)
    run(torch.ones(3, 8, device=device))
    with pytest.raises(ValueError, match="of the program"):
        run(torch.ones(3, 8, device=device))
    agree(run, model_of(device), device)
    assert cudagraphs.stats().replays == 3


@pytest.mark.uncaptured
def test_a_hook_that_reads_is_named(device):
    model = model_of(device)
    model[1].register_forward_hook(lambda module, args, output: print(end=str(output.sum().item())[:0]))
    with pytest.warns(DynxWarning, match="the fast path of Sequential runs uncaptured"):
        run = cudagraphs.fast_path(model, torch.ones(3, 8, device=device), config=config(device))
    agree(run, model, device)


def recorded(device, kind):
    model, x = model_of(device), torch.ones(1, 8, device=device)
    if kind == "fast path":
        return cudagraphs.fast_path(model, x, config=config(device))
    model.unused = torch.nn.Parameter(torch.ones(2, device=device))
    try:
        return cudagraphs.graphed(
            model, (x,), gradients="in_place", allow_unused_input=kind != "refused", config=config(device)
        )
    except UsageError as error:
        return error


@pytest.mark.parametrize("kind", ["fast path", "graphed", "refused"])
def test_garbage_that_is_collected_during_a_capture(device, kind):
    """Graphs that nobody holds any more may be in it."""

    def litter():
        ring = [recorded(device, kind)]
        ring.append(ring)

    def collect(x):
        gc.collect()

    litter()
    run = run_of(device, collect)
    agree(run, model_of(device), device, 4)
    assert cudagraphs.stats().replays >= 3


FORKS = """
import os, torch
from dynx import cudagraphs
torch.set_num_threads(1)  # others do not survive a fork
model = torch.nn.Linear(4, 4)
run = cudagraphs.fast_path(model, torch.ones(3, 4), config=cudagraphs.Config(runtime="emulator"))
child = os.fork()
x = torch.randn(3, 4)
agrees = torch.equal(run(x), model(x))
if not child:
    os._exit(0 if agrees else 1)
assert os.waitpid(child, 0)[1] == 0 and agrees
"""


def test_a_child_goes_on():
    subprocess.run([sys.executable, "-c", FORKS], check=True, timeout=60)


def reserved():
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved()


@pytest.mark.gpu
@NO_GPU
@pytest.mark.parametrize("device", ["cuda"], indirect=True)
@pytest.mark.parametrize("kind", ["fast path", "graphed", "step", "failing"])
def test_memory_is_given_back(device, kind):
    def once():
        model, x = model_of(device, 512), torch.ones(256, 512, device=device)
        if kind == "fast path":
            run = cudagraphs.fast_path(model, x, config=config(device))
            run(x)
        elif kind == "graphed":
            run = cudagraphs.graphed(model, (x,), config=config(device))
            run(x).sum().backward()
        elif kind == "step":
            optimizer = torch.optim.AdamW(model.parameters(), fused=True, capturable=True)
            run = cudagraphs.train_step(
                lambda x: model(x).sum(), model.parameters(), optimizer=optimizer, config=config(device)
            )
            for _ in range(3):
                run(x)
        else:
            with pytest.warns(DynxWarning):
                cudagraphs.fast_path(lambda x: model(x) * x.sum().item(), x, config=config(device))

    for _ in range(2):
        once()
    before = reserved()
    for _ in range(10 if kind == "failing" else 50):
        once()
    assert abs(reserved() - before) <= 2 * MEGABYTE


@pytest.mark.gpu
@NO_GPU
@pytest.mark.parametrize("device", ["cuda"], indirect=True)
def test_a_stream_of_the_callers_own(device):
    model = model_of(device)
    run = cudagraphs.fast_path(model, torch.ones(3, 8, device=device), config=config(device))
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        agree(run, model, device)
    torch.cuda.current_stream().wait_stream(stream)
    agree(run, model, device)
