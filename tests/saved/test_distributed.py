"""DDP and FSDP with one rank on the CPU: gradients are those without hooks."""

import socket

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from support.saved_training import exact_hooks, graphs_saved
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel


@pytest.fixture
def one_rank():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x):
        return torch.tanh(self.down(F.gelu(self.up(x))))


def model_of():
    torch.manual_seed(0)
    return Model()


def gradients_of(model, wrapped):
    model.compile(backend="aot_eager")
    with graphs_saved() as graphs, exact_hooks():
        loss = wrapped(torch.ones(4, 16)).square().sum()
    loss.backward()
    assert any(tensor.codec == "negated" for graph in graphs for tensor in graph.tensors)
    return [full(parameter.grad) for parameter in model.parameters()]


def full(gradient):
    return gradient.full_tensor() if hasattr(gradient, "full_tensor") else gradient


def expected():
    model = model_of()
    model(torch.ones(4, 16)).square().sum().backward()
    return [parameter.grad for parameter in model.parameters()]


def test_ddp(one_rank):
    model = model_of()
    torch.testing.assert_close(gradients_of(model, DistributedDataParallel(model)), expected())


def test_fsdp(one_rank):
    model = model_of()
    fully_shard(model, mesh=dist.init_device_mesh("cpu", (1,)))
    torch.testing.assert_close(gradients_of(model, model), expected())
