"""`Config(verify=n)` compares no bytes that depend on uninitialized memory."""

from __future__ import annotations

import pytest
import torch
from support.configs import config_for
from support.hidden_number import Hidden, hidden_factor
from torch import nn

from dynx import cudagraphs
from dynx.cudagraphs._recording.uninitialized import FilledMemory
from dynx.errors import ReplayDiffers


def batches(device, count=6):
    torch.manual_seed(1)
    return [torch.randn(3, 4).to(device) for _ in range(count)]


def fast_path(model, config):
    return cudagraphs.fast_path(model, config=config)


def used_before(device):
    """Leave bytes of no meaning in memory that the next tensors get."""
    _ = [torch.randn(256).to(device) for _ in range(4)]


UNINITIALIZED = {
    "never written": lambda x: torch.empty(256, device=x.device),
    "written in part": lambda x: first_rows(torch.empty(256, device=x.device), x),
    "of integers": lambda x: first_rows(x.new_empty(256, dtype=torch.int32), x),
    "strided": lambda x: torch.empty_strided((16, 16), (32, 1), device=x.device),
    "computed from": lambda x: x.sum() + torch.empty(256, device=x.device),
}


def first_rows(memory, x):
    memory[:3] = x.sum()
    return memory


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("entry", ["fast_path", "graphed", "train_step"])
@pytest.mark.parametrize("kind", UNINITIALIZED)
def test_uninitialized_memory_is_no_difference(device, kind, entry):
    """Nobody promises what bytes it has."""
    model, make = nn.Linear(4, 4).to(device), UNINITIALIZED[kind]

    def function(x):
        return model(x).mean(), make(x)

    x, config = batches(device)[0], config_for(device, verify=3)
    if entry == "train_step":
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        run = cudagraphs.train_step(function, model.parameters(), optimizer=optimizer, config=config)
    else:
        run = {"fast_path": fast_path, "graphed": lambda f, c: cudagraphs.graphed(f, (x,), config=c)}[entry](function, config)
    for _ in range(6):
        used_before(device)
        run(x)
    assert cudagraphs.stats().verified == 3


@pytest.mark.filterwarnings("error")
def test_uninitialized_memory_in_a_buffer_is_no_difference(device):
    model, buffer = nn.Identity(), torch.zeros(256, device=device)

    def function(x):
        buffer.copy_(torch.empty_like(buffer))
        return model(x)

    run = fast_path(function, config_for(device, verify=3))
    for _ in range(6):
        used_before(device)
        run(batches(device)[0])
    assert cudagraphs.stats().verified == 3


@pytest.mark.usefixtures("hidden")
def test_what_is_written_beside_uninitialized_memory_is_compared(device):
    model = nn.Identity()

    def function(x):
        memory = torch.empty(256, device=x.device)
        memory[:3] = model(x)[:3] * hidden_factor()
        return memory

    run = fast_path(function, config_for(device, verify=4))
    x = torch.ones(4, device=device)
    _ = [run(x) for _ in range(3)]
    Hidden.factor = 2.0
    used_before(device)
    with pytest.raises(ReplayDiffers, match=r"result 0, a torch.float32 tensor of shape .256.: 3 of 256 elements differ"):
        run(x)


def test_memory_that_a_resize_adds_is_filled():
    with FilledMemory("garbage"):
        grown = torch.ones(4).resize_(6)
        like = torch.empty(2, dtype=torch.int64)
    assert grown[:4].tolist() == [1.0] * 4
    assert grown[4:].isnan().all()
    assert like.tolist() == [1, 1]
