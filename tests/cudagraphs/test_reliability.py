"""After a failed capture the program works and the reason is named; memory of recordings is freed."""

from __future__ import annotations

import gc
import os
import subprocess
import sys

import pytest
import torch
from support.agreement import assert_agree
from support.configs import config_for
from support.devices import on_cuda
from support.models import mlp

from dynx import cudagraphs
from dynx.errors import DynxWarning, UsageError

MEGABYTE = 2**20


class ActsDuringCapture:
    """Runs an action in its second call, which is the capture."""

    def __init__(self, model, action):
        self.model, self.what, self.calls = model, action, 0

    def __call__(self, x):
        self.calls += 1
        if self.calls == 2:
            self.what(x)
        return self.model(x)


def fast_path_that(device, action):
    return cudagraphs.fast_path(
        ActsDuringCapture(mlp(device, 8, 8, 8), action), unsafe_skip_checks=True, config=config_for(device)
    )


def agree(run, model, device, calls=3):
    assert_agree(run, model, lambda: (torch.randn(3, 8, device=device),), calls=calls)


def run_out_of_memory(x):
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 3 GiB")


def read_value(x):
    x.sum().item()


@pytest.mark.uncaptured
@pytest.mark.parametrize(
    ("action", "reason"), [(run_out_of_memory, "out of memory"), (read_value, "cannot be captured|reads a value")]
)
def test_failed_capture_leaves_a_working_fast_path(device, action, reason):
    run = fast_path_that(device, action)
    run(torch.ones(3, 8, device=device))
    with pytest.warns(DynxWarning, match=reason):
        run(torch.ones(3, 8, device=device))
    agree(run, mlp(device, 8, 8, 8), device)
    assert cudagraphs.stats().replays == 0
    assert cudagraphs.stats().skips[0].reason


def test_user_exception_during_capture_propagates_and_later_calls_replay(device):
    def fail(x):
        raise ValueError("of the program")

    run = fast_path_that(device, fail)
    run(torch.ones(3, 8, device=device))
    with pytest.raises(ValueError, match="of the program"):
        run(torch.ones(3, 8, device=device))
    agree(run, mlp(device, 8, 8, 8), device)
    assert cudagraphs.stats().replays == 3


@pytest.mark.uncaptured
def test_module_with_a_hook_that_reads_a_value_runs_uncaptured(device):
    model = mlp(device, 8, 8, 8)
    model[1].register_forward_hook(lambda module, args, output: print(end=str(output.sum().item())[:0]))
    with pytest.warns(DynxWarning, match="the fast path of Sequential runs uncaptured"):
        run = cudagraphs.fast_path(model, torch.ones(3, 8, device=device), config=config_for(device))
    agree(run, model, device)


def make_recording(device, kind):
    model, x = mlp(device, 8, 8, 8), torch.ones(1, 8, device=device)
    if kind == "fast path":
        return cudagraphs.fast_path(model, x, config=config_for(device))
    model.unused = torch.nn.Parameter(torch.ones(2, device=device))
    try:
        return cudagraphs.graphed(
            model, (x,), gradients="in_place", allow_unused_input=kind != "refused", config=config_for(device)
        )
    except UsageError as error:
        return error


@pytest.mark.parametrize("kind", ["fast path", "graphed", "refused"])
def test_garbage_collection_of_cuda_graphs_during_capture_does_not_break_it(device, kind):
    """The garbage may contain CUDA graphs, which must not be destroyed during a capture."""

    def litter():
        ring = [make_recording(device, kind)]
        ring.append(ring)

    def collect(x):
        gc.collect()

    litter()
    run = fast_path_that(device, collect)
    agree(run, mlp(device, 8, 8, 8), device, 4)
    assert cudagraphs.stats().replays >= 3


FORKING_PROGRAM = """
import os, torch
from dynx import cudagraphs
torch.set_num_threads(1)  # OpenMP threads do not survive a fork
model = torch.nn.Linear(4, 4)
run = cudagraphs.fast_path(model, torch.ones(3, 4), config=cudagraphs.Config(runtime="emulator"))
child = os.fork()
x = torch.randn(3, 4)
agrees = torch.equal(run(x), model(x))
if not child:
    os._exit(0 if agrees else 1)
assert os.waitpid(child, 0)[1] == 0 and agrees
"""


@pytest.mark.slow
def test_recordings_replay_in_parent_and_child_after_a_fork():
    subprocess.run([sys.executable, "-c", FORKING_PROGRAM], check=True, timeout=600)


def reserved():
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved()


@on_cuda
@pytest.mark.parametrize("kind", ["fast path", "graphed", "step", "failing"])
def test_device_memory_of_unreferenced_recordings_is_freed(device, kind):
    def once():
        model, x = mlp(device, 512, 512, 512), torch.ones(256, 512, device=device)
        if kind == "fast path":
            run = cudagraphs.fast_path(model, x, config=config_for(device))
            run(x)
        elif kind == "graphed":
            run = cudagraphs.graphed(model, (x,), config=config_for(device))
            run(x).sum().backward()
        elif kind == "step":
            optimizer = torch.optim.AdamW(model.parameters(), fused=True, capturable=True)
            run = cudagraphs.train_step(
                lambda x: model(x).sum(), model.parameters(), optimizer=optimizer, config=config_for(device)
            )
            for _ in range(3):
                run(x)
        else:
            with pytest.warns(DynxWarning):
                cudagraphs.fast_path(lambda x: model(x) * x.sum().item(), x, config=config_for(device))

    for _ in range(2):
        once()
    before = reserved()
    for _ in range(10 if kind == "failing" else 50):
        once()
    assert abs(reserved() - before) <= 2 * MEGABYTE


@on_cuda
def test_fast_path_matches_eager_on_a_user_stream(device):
    model = mlp(device, 8, 8, 8)
    run = cudagraphs.fast_path(model, torch.ones(3, 8, device=device), config=config_for(device))
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        agree(run, model, device)
    torch.cuda.current_stream().wait_stream(stream)
    agree(run, model, device)


MANY_SIZES = """
import torch
from torch import nn
from dynx import cudagraphs

model = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)).cuda().eval()
run = cudagraphs.fast_path(model, config=cudagraphs.Config(max_recordings=16, on_limit="lru"))
reserved = []
for _ in range(4):
    for number in range(100):
        x = torch.randn(64 * (1 + number * 37 % 100), 512, device="cuda")
        with torch.no_grad():
            for _ in range(3):
                run(x)
    reserved.append(torch.cuda.memory_reserved())
print(*reserved)
"""


@on_cuda
@pytest.mark.parametrize("settings", ["", "expandable_segments:True"])
def test_memory_of_many_sizes_is_bounded(device, settings):
    environment = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": settings}
    command = [sys.executable, "-c", MANY_SIZES]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=600)
    first, *_, last = map(int, done.stdout.split())
    assert first < 1024 * MEGABYTE
    assert last < 1.1 * first, "memory grows with each round over the same sizes"
