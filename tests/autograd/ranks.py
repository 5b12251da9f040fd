"""Train with DDP and FSDP on two ranks; each rank compares gradients of captured passes with those of eager autograd."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import dynx

STEPS = 3


def model_of(device):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1)).to(device)


def doubled(gradient):
    return gradient * 2


def gradients(device, rank, wrap):
    model = model_of(device)
    model[0].weight.register_hook(doubled)
    wrapped = wrap(model)
    found = []
    for number in range(STEPS):
        model.zero_grad()
        generator = torch.Generator().manual_seed(10 * number + rank)  # each rank has its own batch
        wrapped(torch.randn(4, 8, generator=generator).to(device)).square().sum().backward()
        found += [full(parameter.grad).clone() for parameter in model.parameters()]
    return found


def full(gradient):
    return gradient.full_tensor() if hasattr(gradient, "full_tensor") else gradient


def ddp(device):
    return lambda model: DistributedDataParallel(model, device_ids=[device] if device.type == "cuda" else None)


def fsdp(device):
    mesh = dist.init_device_mesh(device.type, (dist.get_world_size(),))
    return lambda model: fully_shard(model, mesh=mesh)


def compare(kind, rank, world, port, devices, backend):
    """Compare gradients on one rank, and print what the log and the watch have."""
    device = torch.device("cuda", rank) if devices == "cuda" else torch.device("cpu")
    if devices == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if devices == "cuda" else "gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    wrap = {"ddp": ddp, "fsdp": fsdp}[kind](device)
    expected = gradients(device, rank, wrap)
    torch._dynamo.config.optimize_ddp = "python_reducer"
    with dynx.watch() as watch, dynx.autograd.capture(backend=backend) as log:
        found = gradients(device, rank, wrap)
    same = all(torch.allclose(one, other) for one, other in zip(found, expected, strict=True))
    kinds = sorted({hook.kind for capture in log for hook in capture.hooks})
    print(f"rank {rank}: {'the same' if same else 'other'} gradients; {len(log)} captures, {log[0].calls} calls, hooks {kinds}")
    print(f"findings {[finding.rule for finding in watch.findings if finding.rule.startswith('DX7')]}")
    assert not log.troubles
    assert not watch.troubles
    assert all(capture.order_errors == () for capture in log)
    torch._dynamo.reset()  # NCCL waits for the CUDA graphs that contain its operations
    dist.destroy_process_group()


if __name__ == "__main__":
    kind, rank, world, port, devices, backend = sys.argv[1:]
    compare(kind, int(rank), int(world), int(port), devices, None if backend == "None" else backend)
