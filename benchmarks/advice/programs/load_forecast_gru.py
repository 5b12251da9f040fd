"""Probabilistic load forecasting: a GRU cell with a learned initial state, unrolled step by step with calendar features."""

from datetime import datetime, timedelta

import torch
import torch.nn.functional as F
from torch import nn

START = datetime(2024, 3, 4)


class Forecaster(nn.Module):
    def __init__(self, batch, hidden=24):
        super().__init__()
        self.cell = nn.GRUCell(3, hidden)
        self.h0 = nn.Parameter(torch.zeros(batch, hidden))
        self.head = nn.Linear(hidden, 2)

    def step(self, load, clock, state):
        features = torch.cat([load, clock.expand(len(load), 2)], dim=1)
        state = self.cell(features, state)
        mean, raw_scale = self.head(state).unbind(dim=1)
        return mean, F.softplus(raw_scale) + 1e-3, state


def calendar(hour):
    when = START + timedelta(hours=hour)
    phase = torch.tensor((when.hour + 24 * when.weekday()) * 2 * torch.pi / 168)
    return torch.stack([phase.sin(), phase.cos()])


def gaussian_nll(mean, scale, target):
    return (0.5 * ((target - mean) / scale).square() + scale.log()).mean()


class Trainer:
    def __init__(self, model, lr=1e-2):
        self.model = model
        self.step = torch.compile(model.step, backend="aot_eager")
        self.optimizer = torch.optim.Adam(model.parameters(), lr=lr)

    def unroll(self, series, hours):
        state, losses = self.model.h0, []
        for t in range(series.shape[1] - 1):
            mean, scale, state = self.step(series[:, t : t + 1], hours[t], state)
            losses.append(gaussian_nll(mean, scale, series[:, t + 1]))
        return torch.stack(losses).mean(), state

    def fit(self, series, hours, epochs):
        for epoch in range(epochs):
            loss, _ = self.unroll(series, hours)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            print(f"epoch {epoch + 1} nll {loss.item():.3f}")


def synthetic_load(batch, length):
    hours = torch.arange(length)
    daily = torch.sin(hours * 2 * torch.pi / 24)
    return daily + 0.2 * torch.randn(batch, 1) + 0.05 * torch.randn(batch, length)


def main():
    torch.manual_seed(0)
    batch, length = 8, 18
    series = synthetic_load(batch, length)
    hours = [calendar(hour) for hour in range(length)]
    trainer = Trainer(Forecaster(batch))
    trainer.fit(series, hours, epochs=4)


if __name__ == "__main__":
    main()
