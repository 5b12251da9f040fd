"""One process of two that train a model together, compared with a model of its own that trains on the data of both.

`python cudagraphs_ranks.py RANK FILE DEVICE`: a process for each rank, which meet at the file. Writes what was captured.
"""

from __future__ import annotations

import copy
import json
import sys
import warnings

import torch
from cudagraphs_runtimes import RUNTIMES
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
    for each in (model.inner, model.outer, model):
        fully_shard(each, mesh=mesh)
    return model


def whole(tensor):
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def train(wrap, rank, device):
    cudagraphs.reset()
    torch._dynamo.reset()
    torch.manual_seed(0)  # the same model and the same data in both processes
    twin = Model().to(device)
    wrapped = wrap(copy.deepcopy(twin), device)
    run = torch.compile(wrapped, backend=cudagraphs.backend(cudagraphs.Config(runtime=RUNTIMES[device])))
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (wrapped, twin)]
    for _ in range(STEPS):
        x = torch.randn(RANKS, 3, 4, device=device)
        run(x[rank]).square().mean().backward()
        twin(x.flatten(0, 1)).square().mean().backward()
        for mine, theirs in zip(wrapped.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(whole(mine.grad), theirs.grad)
        for each in optimizers:
            each.step()
            each.zero_grad()
    stats = cudagraphs.stats()
    return {"recordings": stats.recordings, "replays": stats.replays, "moves": len(stats.moves)}


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
