"""Sample from a tiny latent denoiser with a Karras schedule; guidance is switched off late in the trajectory."""

import enum
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn


class Solver(enum.Enum):
    EULER = "euler"
    HEUN = "heun"


@dataclass
class SamplerState:
    solver: Solver
    guidance: float
    eta: float = 0.0


class Denoiser(nn.Module):
    def __init__(self, channels=4, width=16):
        super().__init__()
        self.inp = nn.Conv2d(channels, width, 3, padding=1)
        self.cond = nn.Embedding(5, width)
        self.noise = nn.Linear(1, width)
        self.mid = nn.Conv2d(width, width, 3, padding=1)
        self.out = nn.Conv2d(width, channels, 3, padding=1)

    def forward(self, x, sigma, label):
        emb = self.cond(label) + self.noise(sigma.log().reshape(1, 1) / 4)
        h = torch.nn.functional.silu(self.inp(x) + emb[:, :, None, None])
        h = torch.nn.functional.silu(self.mid(h))
        return self.out(h)


def karras_sigmas(steps, low=0.05, high=5.0, rho=7.0):
    ramp = np.linspace(0, 1, steps)
    return (high ** (1 / rho) + ramp * (low ** (1 / rho) - high ** (1 / rho))) ** rho


class Sampler:
    def __init__(self, net):
        self.net = net

    @torch.compile(backend="eager")
    def step(self, x, sigma, sigma_next, label, state):
        sigma_t = torch.as_tensor(sigma, dtype=torch.float32)
        cond = self.net(x, sigma_t, label)
        if state.guidance != 1.0:
            uncond = self.net(x, sigma_t, torch.zeros_like(label))
            cond = uncond + state.guidance * (cond - uncond)
        d = cond / (1 + sigma_t)
        x_next = x + (sigma_next - sigma) * d
        if state.solver is Solver.HEUN:
            d_next = self.net(x_next, sigma_t, label) / (1 + sigma_t)
            x_next = x + (sigma_next - sigma) * (d + d_next) / 2
        return x_next


@torch.no_grad()
def sample(sampler, label, steps=8, guidance=3.0):
    torch.manual_seed(1)
    sigmas = karras_sigmas(steps)
    x = torch.randn(len(label), 4, 8, 8) * float(sigmas[0])
    for i in range(steps - 1):
        late = i >= steps - 3
        state = SamplerState(Solver.EULER if late else Solver.HEUN, 1.0 if late else guidance)
        x = sampler.step(x, float(sigmas[i]), float(sigmas[i + 1]), label, state)
    return x


def main():
    torch.manual_seed(0)
    sampler = Sampler(Denoiser().eval())
    latents = sample(sampler, torch.tensor([1, 2, 3]))
    print(f"latent mean {latents.mean().item():.2f} std {latents.std().item():.2f}")


if __name__ == "__main__":
    main()
