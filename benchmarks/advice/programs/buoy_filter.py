"""Kalman filter for drifting buoys: fixes arrive at uneven times, some are outliers, the filter step is compiled."""

import enum
from dataclasses import dataclass

import torch


class Sea(enum.Enum):
    CALM = 0.05
    ROUGH = 0.4


@dataclass(frozen=True)
class Setup:
    sea: Sea
    gate: float
    noise: float


@dataclass
class Track:
    mean: torch.Tensor
    cov: torch.Tensor
    rejected: torch.Tensor
    updates: int = 0


def transition(gap):
    """Position and velocity after a gap of time; gap is a tensor of one number."""
    one, zero = torch.ones_like(gap), torch.zeros_like(gap)
    return torch.stack([torch.stack([one, gap]), torch.stack([zero, one])])


class Filter:
    def __init__(self, setup):
        self.setup = setup
        self.step = torch.compile(self._step, fullgraph=True)
        self.clock = 0.0

    def _step(self, mean, cov, fix, gap):
        move = transition(gap)
        mean = mean @ move.T
        cov = move @ cov @ move.T + self.setup.sea.value * gap * torch.eye(2)
        surprise = fix - mean[:, 0]
        spread = cov[:, 0, 0] + self.setup.noise
        accepted = surprise.square() < self.setup.gate**2 * spread
        gain = cov[:, :, 0] / spread[:, None]
        new_mean = mean + gain * surprise[:, None]
        new_cov = cov - gain[:, :, None] * cov[:, None, 0, :]
        mean = torch.where(accepted[:, None], new_mean, mean)
        cov = torch.where(accepted[:, None, None], new_cov, cov)
        return mean, cov, ~accepted

    def feed(self, track, fix, time):
        gap = torch.tensor(time - self.clock)
        self.clock = time
        track.mean, track.cov, rejected = self.step(track.mean, track.cov, fix, gap)
        track.rejected = track.rejected + rejected
        track.updates += 1


def fixes(n, buoys):
    gen = torch.Generator().manual_seed(21)
    drift = torch.linspace(-1, 1, buoys)
    time = 0.0
    for i in range(n):
        time += 0.5 + 0.25 * (i % 3)
        fix = drift * time + 0.1 * torch.randn(buoys, generator=gen)
        if i % 5 == 4:
            fix[i % buoys] += 30.0
        yield time, fix


def main():
    buoys = 6
    track = Track(torch.zeros(buoys, 2), torch.eye(2).repeat(buoys, 1, 1), torch.zeros(buoys, dtype=torch.long))
    filter_ = Filter(Setup(Sea.CALM, gate=4.0, noise=0.02))
    for time, fix in fixes(15, buoys):
        filter_.feed(track, fix, time)
    print("velocity", [round(v, 1) for v in track.mean[:, 1].tolist()])
    print("rejected", track.rejected.tolist(), "of", track.updates)


if __name__ == "__main__":
    main()
