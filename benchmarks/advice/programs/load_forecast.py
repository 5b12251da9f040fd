"""Forecasts the load of a power grid: LSTM encoder, autoregressive decoder with scheduled sampling, growing lead time."""

import random

import torch
import torch.nn.functional as F
from torch import nn

HISTORY = 24
HORIZON = 3


class Forecaster(nn.Module):
    def __init__(self, hidden=16):
        super().__init__()
        self.encoder = nn.LSTM(1, hidden, batch_first=True)
        self.cell = nn.LSTMCell(1, hidden)
        self.out = nn.Linear(hidden, 1)
        self.teacher_forcing = 0.5

    def encode(self, history):
        _, (h, c) = self.encoder(history)
        return h[0], c[0]

    def forward(self, history, future):
        h, c = self.encode(history)
        value = history[:, -1]
        steps = []
        for t in range(future.shape[1]):
            h, c = self.cell(value, (h, c))
            value = self.out(h)
            steps.append(value)
            if self.training and random.random() < self.teacher_forcing:
                value = future[:, t]
        return torch.stack(steps, dim=1)


def batch(step, lead, size=16):
    g = torch.Generator().manual_seed(step)
    phase = torch.rand(size, 1, generator=g) * 24
    total = HISTORY + lead + HORIZON
    hours = torch.arange(total)
    load = torch.sin((hours + phase) * 2 * torch.pi / 24) + 0.1 * torch.randn(size, total, generator=g)
    load = load.unsqueeze(-1)
    return load[:, :HISTORY], load[:, HISTORY + lead :].clone()


def main():
    torch.manual_seed(0)
    random.seed(0)
    model = Forecaster()
    compiled = torch.compile(model, backend="eager")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(9):
        lead = 2 * (step // 3)
        history, future = batch(step, lead)
        loss = F.smooth_l1_loss(compiled(history, future), future)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 3 == 2:
            print(f"step {step} lead {lead} loss {loss.item():.4f}")
    model.eval()
    history, future = batch(100, 4)
    with torch.no_grad():
        print(f"test {F.l1_loss(model(history, future), future).item():.4f}")


if __name__ == "__main__":
    main()
