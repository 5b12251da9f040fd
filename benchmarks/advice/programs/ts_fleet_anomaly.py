"""Watches a fleet of machines with one shared autoencoder and a running error level per machine, which raises the alarms."""

import torch
import torch.nn.functional as F
from torch import nn

FLEET = [f"{kind}-{number}" for kind in ("pump", "fan", "press") for number in range(4)]


class Autoencoder(nn.Module):
    def __init__(self, sensors, code):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(sensors, 16), nn.Tanh(), nn.Linear(16, code))
        self.decode = nn.Sequential(nn.Linear(code, 16), nn.Tanh(), nn.Linear(16, sensors))

    def forward(self, x):
        return self.decode(self.encode(x))


class Monitor:
    def __init__(self, model, machines, decay=0.9, factor=3.0):
        self.model = model
        self.decay = decay
        self.factor = factor
        self.levels = {machine: torch.tensor(1.0) for machine in machines}

    def score(self, machine, x):
        error = (self.model(x) - x).pow(2).mean(-1)
        level = self.levels[machine]
        alarms = error > self.factor * level
        self.levels[machine] = self.decay * level + (1 - self.decay) * error.median()
        return alarms


def readings(ticks, sensors):
    generator = torch.Generator().manual_seed(11)
    mix = torch.randn(3, sensors, generator=generator)
    for tick in range(ticks):
        for machine in FLEET:
            x = torch.randn(8, 3, generator=generator) @ mix
            if tick == 4 and machine == "fan-2":
                x[5] += 12 * torch.randn(sensors, generator=generator)
            yield tick, machine, x


def pretrain(model, steps):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _, (_, _, x) in zip(range(steps), readings(20, 6)):
        loss = F.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    torch.manual_seed(0)
    model = Autoencoder(sensors=6, code=3)
    print(f"pretraining loss {pretrain(model, 120):.4f}")
    monitor = Monitor(model, FLEET)
    score = torch.compile(monitor.score, backend="eager")
    with torch.no_grad():
        for tick, machine, x in readings(6, 6):
            alarms = score(machine, x)
            if tick == 4:
                print(f"tick {tick} {machine} alarms {alarms.nonzero().flatten().tolist()}")
    print("levels", [round(level.item(), 3) for level in monitor.levels.values()])


if __name__ == "__main__":
    main()
