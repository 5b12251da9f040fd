"""Inpainting with a small DDIM sampler: the denoiser and the scheduler's step are compiled together."""

import math
from dataclasses import dataclass, field

import torch
from torch import nn


@dataclass
class NoiseSchedule:
    train_steps: int = 1000
    steps: int = 6
    cursor: int = 0
    alphas: torch.Tensor = field(init=False)
    timesteps: list = field(init=False)

    def __post_init__(self):
        betas = torch.linspace(1e-4, 0.02, self.train_steps)
        self.alphas = torch.cat([torch.cumprod(1 - betas, 0), torch.ones(1)])
        stride = self.train_steps // self.steps
        self.timesteps = list(range(self.train_steps - 1, -1, -stride))[: self.steps] + [-1]


class Denoiser(nn.Module):
    def __init__(self, width: int = 16):
        super().__init__()
        self.width = width
        self.stem = nn.Conv2d(2, width, 3, padding=1)
        self.time = nn.Linear(width, width)
        self.out = nn.Conv2d(width, 1, 3, padding=1)

    def embed(self, t, device):
        half = self.width // 2
        freqs = torch.exp(-math.log(10000.0) * torch.arange(half, device=device) / half)
        angles = t * freqs
        return torch.cat([angles.sin(), angles.cos()])

    def forward(self, x, mask, t):
        hidden = self.stem(torch.cat([x, mask], 1))
        hidden = hidden + self.time(self.embed(t, x.device)).view(1, -1, 1, 1)
        return self.out(torch.nn.functional.silu(hidden))


class Inpainter:
    def __init__(self, denoiser: Denoiser, schedule: NoiseSchedule):
        self.denoiser = denoiser
        self.schedule = schedule
        self.trace = []

    @torch.compile
    def step(self, x, known, mask):
        sched = self.schedule
        t = sched.timesteps[sched.cursor]
        here = sched.alphas[t]
        eps = self.denoiser(x, mask, float(t))
        clean = (x - (1 - here).sqrt() * eps) / here.sqrt()
        clean = torch.where(mask > 0, clean, known).clamp(-1, 1)
        before = sched.alphas[sched.timesteps[sched.cursor + 1]]
        x = before.sqrt() * clean + (1 - before).sqrt() * eps
        if not torch.isfinite(x).all():
            raise FloatingPointError("the sampler diverged")
        return x

    @torch.no_grad()
    def sample(self, known, mask, seed):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(known.shape, generator=generator)
        for index in range(self.schedule.steps):
            self.schedule.cursor = index
            x = self.step(x, known, mask)
            self.trace.append(x.std().item())
        return x


def main():
    torch.manual_seed(0)
    painter = Inpainter(Denoiser().eval(), NoiseSchedule())
    known = torch.sin(torch.linspace(0, 6, 32)).expand(1, 1, 32, 32).contiguous()
    mask = torch.zeros_like(known)
    mask[..., 8:20, 8:20] = 1
    for seed in range(2):
        x = painter.sample(known, mask, seed)
        print(f"seed {seed}: mean {x.mean():.3f}, std {x.std():.3f}")
    print(f"{len(painter.trace)} steps")


if __name__ == "__main__":
    main()
