"""Forecasts hourly load with a linear model behind reversible normalisation with running statistics, then backtests on the last windows."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class RevIN(nn.Module):
    def __init__(self, channels, eps=1e-5, momentum=0.1, affine=True):
        super().__init__()
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.mean = None
        self.stdev = None
        if affine:
            self.weight = nn.Parameter(torch.ones(channels))
            self.bias = nn.Parameter(torch.zeros(channels))

    def update(self, x):
        mean = x.mean(dim=(0, 1))
        stdev = torch.sqrt(x.var(dim=(0, 1), unbiased=False) + self.eps)
        self.mean = mean if self.mean is None else torch.lerp(self.mean, mean, self.momentum)
        self.stdev = stdev if self.stdev is None else torch.lerp(self.stdev, stdev, self.momentum)

    def forward(self, x, mode):
        if mode == "norm":
            self.update(x.detach())
            x = (x - self.mean) / self.stdev
            return x * self.weight + self.bias if self.affine else x
        if self.affine:
            x = (x - self.bias) / (self.weight + self.eps)
        return x * self.stdev + self.mean


class Forecaster(nn.Module):
    def __init__(self, channels, context, horizon):
        super().__init__()
        self.revin = RevIN(channels)
        self.trend = nn.Linear(context, horizon)
        self.season = nn.Linear(context, horizon)

    def forward(self, past):
        x = self.revin(past, "norm").transpose(1, 2)
        smooth = F.avg_pool1d(x, 5, stride=1, padding=2, count_include_pad=False)
        y = self.trend(smooth) + self.season(x - smooth)
        return self.revin(y.transpose(1, 2), "denorm")


def load_series(hours, channels):
    rng = np.random.default_rng(0)
    hour = np.arange(hours)[:, None]
    wave = np.sin(2 * np.pi * hour / 24 + np.arange(channels)) + 0.3 * np.sin(2 * np.pi * hour / 168)
    return wave + 0.05 * rng.standard_normal((hours, channels)) + 0.002 * hour


def windows(series, context, horizon, stride):
    starts = range(0, len(series) - context - horizon + 1, stride)
    x = np.stack([series[start : start + context] for start in starts])
    y = np.stack([series[start + context : start + context + horizon] for start in starts])
    return x, y


def main():
    torch.manual_seed(0)
    context, horizon = 48, 12
    series = load_series(700, channels=3)
    x, y = (torch.from_numpy(part).float() for part in windows(series[:600], context, horizon, stride=3))
    model = Forecaster(3, context, horizon)
    forecast = torch.compile(model, backend="eager")
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(3):
        order = torch.randperm(len(x))[:150]
        for rows in order.split(32):
            history, future = x[rows], y[rows]
            loss = F.mse_loss(forecast(history), future)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}")
    model.eval()
    with torch.no_grad():
        x_test, y_test = (torch.from_numpy(part).float() for part in windows(series[600:], context, horizon, stride=8))
        error = (model(x_test) - y_test).abs().mean().item()
    print(f"backtest mae {error:.4f} on {len(x_test)} windows")


if __name__ == "__main__":
    main()
