"""Stochastic Karras (EDM) sampler over several aspect ratios, with a seeded generator per request."""

import torch
from torch import nn
from torch.nn import functional as F


class Denoiser(nn.Module):
    def __init__(self, channels=4, width=24):
        super().__init__()
        self.conv_in = nn.Conv2d(channels, width, 3, padding=1)
        self.film = nn.Linear(1, 2 * width)
        self.conv_mid = nn.Conv2d(width, width, 3, padding=1)
        self.conv_out = nn.Conv2d(width, channels, 3, padding=1)

    def forward(self, x, sigma):
        c_in = 1 / (sigma**2 + 0.25).sqrt()
        scale, shift = self.film(sigma.log().view(1, 1) / 4).chunk(2, dim=-1)
        h = F.silu(self.conv_in(c_in * x))
        h = F.silu(self.conv_mid(h) * (1 + scale[..., None, None]) + shift[..., None, None])
        c_skip = 0.25 / (sigma**2 + 0.25)
        return c_skip * x + 0.5 * sigma * c_in * self.conv_out(h)


class KarrasSampler(nn.Module):
    def __init__(self, denoiser, s_churn=0.3, s_noise=1.003):
        super().__init__()
        self.denoiser = denoiser
        self.s_churn = s_churn
        self.s_noise = s_noise

    def forward(self, x, sigma, sigma_next, generator):
        sigma_hat = sigma * (1 + self.s_churn)
        noise = torch.empty_like(x).normal_(generator=generator)
        x = x + noise * self.s_noise * (sigma_hat**2 - sigma**2).sqrt()
        denoised = self.denoiser(x, sigma_hat)
        d = (x - denoised) / sigma_hat
        return x + d * (sigma_next - sigma_hat)


def karras_sigmas(num_steps, sigma_min=0.02, sigma_max=20.0, rho=7.0):
    ramp = torch.linspace(0, 1, num_steps)
    inv = sigma_max ** (1 / rho) + ramp * (sigma_min ** (1 / rho) - sigma_max ** (1 / rho))
    return torch.cat([inv**rho, torch.zeros(1)])


@torch.no_grad()
def generate(sampler, seed, height, width, num_steps=4):
    generator = torch.Generator().manual_seed(seed)
    sigmas = karras_sigmas(num_steps)
    latents = torch.randn(1, 4, height, width, generator=generator) * sigmas[0]
    for sigma, sigma_next in zip(sigmas[:-1], sigmas[1:]):
        latents = sampler(latents, sigma, sigma_next, generator)
    return latents


def main():
    torch.manual_seed(0)
    sampler = torch.compile(KarrasSampler(Denoiser()).eval(), backend="eager")
    for seed, (height, width) in enumerate([(12, 20), (16, 16), (20, 12), (10, 24)]):
        latents = generate(sampler, seed, height, width)
        print(f"{height}x{width} {latents.mean().item():.4f} {latents.std().item():.4f}")


if __name__ == "__main__":
    main()
