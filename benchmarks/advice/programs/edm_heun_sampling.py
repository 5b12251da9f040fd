"""Generates samples with the stochastic Heun sampler of EDM and a Karras noise schedule, then reports their statistics."""

import torch
from torch import nn


class Precond(nn.Module):
    def __init__(self, channels=3, width=16, sigma_data=0.5):
        super().__init__()
        self.sigma_data = sigma_data
        self.noise = nn.Sequential(nn.Linear(1, width), nn.SiLU())
        self.inp = nn.Conv2d(channels, width, 3, 1, 1)
        self.mid = nn.ModuleList(nn.Conv2d(width, width, 3, 1, 1) for _ in range(3))
        self.out = nn.Conv2d(width, channels, 3, 1, 1)
        self.augment_dim = 0
        self.dropout = 0.0

    def forward(self, x, sigma, class_labels=None):
        sigma = sigma.reshape(-1, 1, 1, 1)
        c_skip = self.sigma_data**2 / (sigma**2 + self.sigma_data**2)
        c_out = sigma * self.sigma_data / (sigma**2 + self.sigma_data**2).sqrt()
        c_in = 1 / (self.sigma_data**2 + sigma**2).sqrt()
        emb = self.noise(sigma.log().reshape(-1, 1) / 4)
        h = self.inp(c_in * x)
        for index, block in enumerate(self.mid):
            h = h + block(torch.tanh(h + emb[:, :, None, None] * (index + 1)))
        if self.dropout > 0 and self.training:
            h = nn.functional.dropout(h, self.dropout)
        return c_skip * x + c_out * self.out(h)


def karras_sigmas(steps, sigma_min=0.02, sigma_max=20.0, rho=7.0):
    ramp = torch.linspace(0, 1, steps)
    sigmas = (sigma_max ** (1 / rho) + ramp * (sigma_min ** (1 / rho) - sigma_max ** (1 / rho))) ** rho
    return torch.cat((sigmas, torch.zeros(1)))


@torch.inference_mode()
def heun(denoise, latents, steps, generator, s_churn=4.0, s_min=0.05, s_max=10.0, s_noise=1.003):
    sigmas = karras_sigmas(steps)
    x = latents * sigmas[0]
    for i, (t_cur, t_next) in enumerate(zip(sigmas[:-1], sigmas[1:])):
        gamma = min(s_churn / steps, 2**0.5 - 1) if s_min <= t_cur.item() <= s_max else 0.0
        t_hat = t_cur + gamma * t_cur
        if gamma > 0:
            x = x + (t_hat**2 - t_cur**2).sqrt() * s_noise * torch.randn(x.shape, generator=generator)
        d_cur = (x - denoise(x, t_hat)) / t_hat
        x_next = x + (t_next - t_hat) * d_cur
        if i < steps - 1:
            d_prime = (x_next - denoise(x_next, t_next)) / t_next
            x_next = x + (t_next - t_hat) * (0.5 * d_cur + 0.5 * d_prime)
        x = x_next
    return x


def main():
    torch.manual_seed(0)
    net = Precond().eval().requires_grad_(False)
    denoise = torch.compile(net, backend="aot_eager")
    for steps in (6, 10, 14):
        generator = torch.Generator().manual_seed(steps)
        latents = torch.randn(4, 3, 16, 16, generator=generator)
        samples = heun(denoise, latents, steps, generator)
        print(f"{steps:2d} steps: mean {samples.mean():.3f} std {samples.std():.3f}")


if __name__ == "__main__":
    main()
