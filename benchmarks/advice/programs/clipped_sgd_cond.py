"""Trains a regressor with a loss-spike guard: a batch whose loss jumps is damped inside the graph with torch.cond."""

import torch
import torch.nn.functional as F
from torch import nn


class SpikeGuard(nn.Module):
    """Follows the running loss and damps the loss of outlier batches."""

    def __init__(self, factor=2.0, momentum=0.9):
        super().__init__()
        self.factor = factor
        self.momentum = momentum
        self.damped = 0
        self.register_buffer("running", torch.tensor(1.0))

    def forward(self, loss):
        spike = loss.detach() > self.factor * self.running

        def damp(value):
            self.damped += 1
            return value * 0.1

        def keep(value):
            return value * 1.0

        guarded = torch.cond(spike, damp, keep, (loss,))
        self.running.mul_(self.momentum).add_(guarded.detach(), alpha=1 - self.momentum)
        return guarded


class Regressor(nn.Module):
    def __init__(self, features=6, hidden=24):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(features, hidden), nn.Tanh(), nn.Linear(hidden, 1))
        self.guard = SpikeGuard()

    def forward(self, x, y):
        loss = F.mse_loss(self.body(x).squeeze(-1), y)
        return self.guard(loss)


def batches(count, generator):
    weights = torch.linspace(-1, 1, 6)
    for index in range(count):
        x = torch.randn(32, 6, generator=generator)
        y = x @ weights
        if index % 7 == 5:
            y = y + 6 * torch.randn(32, generator=generator)
        yield x, y


def main():
    torch.manual_seed(0)
    model = Regressor()
    step = torch.compile(model, backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for index, (x, y) in enumerate(batches(21, torch.Generator().manual_seed(1))):
        loss = step(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if index % 5 == 4:
            print(f"step {index + 1} loss {loss.item():.4f} running {model.guard.running.item():.4f}")


if __name__ == "__main__":
    main()
