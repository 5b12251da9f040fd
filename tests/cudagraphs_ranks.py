"""One of two ranks that train with DDP, then with FSDP, compared with a model trained in one process on the data of both.

`python cudagraphs_ranks.py RANK FILE DEVICE`: one process a rank; FILE is the rendezvous. Prints counts of CUDA graphs as JSON.
"""

from __future__ import annotations

import copy
import json
import sys
import warnings

import torch
from support.configs import config_for
from torch import distributed, nn

from dynx import cudagraphs

RANKS, STEPS = 2, 8


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x):
        return self.outer(torch.tanh(self.inner(x)))


def with_ddp(model, device):
    return nn.parallel.DistributedDataParallel(model)


def with_fsdp(model, device):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device, (RANKS,))
    for layer in (model.inner, model.outer, model):
        fully_shard(layer, mesh=mesh)
    return model


def full_tensor(tensor):
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def train(wrap, rank, device):
    cudagraphs.reset()
    torch._dynamo.reset()
    torch.manual_seed(0)  # the same model and the same data in both processes
    twin = Model().to(device)
    wrapped = wrap(copy.deepcopy(twin), device)
    run = torch.compile(wrapped, backend=cudagraphs.backend(config_for(device)))
    optimizers = [torch.optim.SGD(module.parameters(), lr=0.1) for module in (wrapped, twin)]
    for _ in range(STEPS):
        x = torch.randn(RANKS, 3, 4, device=device)
        run(x[rank]).square().mean().backward()
        twin(x.flatten(0, 1)).square().mean().backward()
        for param, twin_param in zip(wrapped.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(full_tensor(param.grad), twin_param.grad)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    stats = cudagraphs.stats()
    return {"recordings": stats.recordings, "replays": stats.replays, "moves": len(stats.address_changes)}


def main(rank, file, device):
    warnings.simplefilter("ignore")
    if device == "cuda":
        torch.cuda.set_device(rank)
    backend = "nccl" if device == "cuda" else "gloo"
    distributed.init_process_group(backend, init_method=f"file://{file}", rank=rank, world_size=RANKS)
    print(json.dumps({"ddp": train(with_ddp, rank, device), "fsdp": train(with_fsdp, rank, device)}))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
