"""Trains a dilated causal convolution forecaster (TCN) on a seasonal series; every residual block is compiled by itself."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class CausalConv(nn.Conv1d):
    def __init__(self, channels, kernel_size, dilation):
        super().__init__(channels, channels, kernel_size, dilation=dilation)
        self.left = (kernel_size - 1) * dilation

    def forward(self, x):
        return super().forward(F.pad(x, (self.left, 0)))


class ResidualBlock(nn.Module):
    def __init__(self, channels, kernel_size, dilation, dropout=0.0):
        super().__init__()
        self.conv = CausalConv(channels, kernel_size, dilation)
        self.gate = CausalConv(channels, kernel_size, dilation)
        self.mix = nn.Conv1d(channels, channels, 1)
        self.drop = nn.Dropout(dropout)

    def forward(self, x):
        h = torch.tanh(self.conv(x)) * torch.sigmoid(self.gate(x))
        return x + self.drop(self.mix(h))


class TCN(nn.Module):
    def __init__(self, channels=8, kernel_size=2, levels=10, horizon=4, max_dilation=64):
        super().__init__()
        self.inp = nn.Conv1d(1, channels, 1)
        self.blocks = nn.ModuleList(
            ResidualBlock(channels, kernel_size, dilation=1 + level * max_dilation // levels) for level in range(levels)
        )
        self.out = nn.Linear(channels, horizon)

    def forward(self, series):
        h = self.inp(series.unsqueeze(1))
        for block in self.blocks:
            h = block(h)
        return self.out(h[..., -1])


def windows(series, length, horizon, rows, rng):
    start = torch.randint(len(series) - length - horizon, (rows,), generator=rng)
    index = start[:, None] + torch.arange(length + horizon)
    both = series[index]
    return both[:, :length], both[:, length:]


def main():
    torch.manual_seed(0)
    rng = torch.Generator().manual_seed(5)
    t = torch.arange(1200.0)
    series = torch.sin(2 * math.pi * t / 24) + 0.5 * torch.sin(2 * math.pi * t / 168)
    model = TCN()
    for block in model.blocks:
        block.compile(backend="eager")
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for step in range(20):
        past, future = windows(series, 128, 4, 32, rng)
        loss = F.l1_loss(model(past), future)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 4:
            print(f"step {step + 1} mae {loss.item():.4f}")


if __name__ == "__main__":
    main()
