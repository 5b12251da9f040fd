"""Trains a residual MLP with activation checkpointing, gradient accumulation and a history of its learning rate and loss."""

import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.profiler import record_function
from torch.utils.checkpoint import checkpoint

ACCUMULATION = 4


class Block(nn.Module):
    def __init__(self, dim, layer):
        super().__init__()
        self.layer = layer
        self.up = nn.Linear(dim, 4 * dim)
        self.down = nn.Linear(4 * dim, dim)

    def forward(self, x):
        return x + self.down(F.silu(self.up(x))) / (1 + self.layer)


class ResidualMLP(nn.Module):
    def __init__(self, dim=12, depth=3, checkpoint_every=2):
        super().__init__()
        self.blocks = nn.ModuleList(Block(dim, layer) for layer in range(depth))
        self.checkpoint_every = checkpoint_every
        self.head = nn.Linear(dim, 1)
        self.register_buffer("forwards", torch.tensor(0))

    def forward(self, x):
        self.forwards += 1
        for block in self.blocks:
            with record_function("block"):
                if self.training and block.layer % self.checkpoint_every == 0:
                    x = checkpoint(block, x, use_reentrant=False)
                else:
                    x = block(x)
        return self.head(x).squeeze(-1)


class History:
    def __init__(self):
        self.rows = []
        self.started = time.perf_counter()

    def add(self, step, loss, norm, lr):
        self.rows.append((step, loss, norm, lr, time.perf_counter() - self.started))

    def show(self):
        for step, loss, norm, lr, _ in self.rows:
            print(f"step {step} loss {loss:.4f} norm {norm:.4f} lr {lr:.4f}")


def micro_batches(generator):
    while True:
        x = torch.randn(8, 12, generator=generator)
        yield x, x[:, :3].sin().sum(dim=-1)


def main():
    torch.manual_seed(0)
    model = ResidualMLP()
    compiled = torch.compile(model, backend="eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.2, total_iters=4)
    batches = micro_batches(torch.Generator().manual_seed(1))
    history = History()
    for step in range(6):
        accumulated = 0.0
        for _ in range(ACCUMULATION):
            x, y = next(batches)
            loss = F.mse_loss(compiled(x), y) / ACCUMULATION
            loss.backward()
            accumulated += loss.item()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if norm.isfinite():
            optimizer.step()
        history.add(step, accumulated, norm.item(), scheduler.get_last_lr()[0])
        scheduler.step()
        optimizer.zero_grad(set_to_none=True)
    history.show()
    print(f"forwards {model.forwards.item()}")


if __name__ == "__main__":
    main()
