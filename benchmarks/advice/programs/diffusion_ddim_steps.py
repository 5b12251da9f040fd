"""DDIM sampling of a small noise predictor on 8x8 images, with one compiled update per timestep."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class NoisePredictor(nn.Module):
    def __init__(self, channels=3, width=16):
        super().__init__()
        self.width = width
        self.time_mlp = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        self.conv_in = nn.Conv2d(channels, width, 3, padding=1)
        self.norm = nn.GroupNorm(4, width)
        self.conv_mid = nn.Conv2d(width, width, 3, padding=1)
        self.conv_out = nn.Conv2d(width, channels, 3, padding=1)

    def time_embedding(self, t):
        half = self.width // 2
        freqs = torch.exp(-math.log(10000) * torch.arange(half) / half)
        args = t * freqs
        return torch.cat([args.sin(), args.cos()]).unsqueeze(0)

    def forward(self, x, t):
        emb = self.time_mlp(self.time_embedding(t))
        h = self.conv_in(x)
        h = self.conv_mid(F.silu(self.norm(h))) + emb[:, :, None, None]
        return self.conv_out(F.silu(h))


class DDIMSampler:
    def __init__(self, model, num_train_timesteps=1000):
        self.model = model
        self.num_train_timesteps = num_train_timesteps
        betas = torch.linspace(1e-4, 0.02, num_train_timesteps)
        self.alphas_cumprod = torch.cumprod(1 - betas, dim=0)
        self.step = torch.compile(self._step, backend="eager")

    def _step(self, x, t, t_prev):
        eps = self.model(x, t)
        alpha = self.alphas_cumprod[t]
        alpha_prev = self.alphas_cumprod[t_prev] if t_prev >= 0 else torch.ones(())
        x0 = (x - (1 - alpha).sqrt() * eps) / alpha.sqrt()
        x0 = x0.clamp(-1, 1)
        return alpha_prev.sqrt() * x0 + (1 - alpha_prev).sqrt() * eps

    @torch.no_grad()
    def sample(self, shape, num_steps):
        x = torch.randn(shape)
        stride = self.num_train_timesteps // num_steps
        timesteps = list(range(0, self.num_train_timesteps, stride))[::-1]
        for t in timesteps:
            x = self.step(x, t, t - stride)
            print(f"t={t:4d} mean={x.mean().item():.4f} std={x.std().item():.4f}")
        return x


def main():
    torch.manual_seed(0)
    sampler = DDIMSampler(NoisePredictor().eval())
    images = sampler.sample((2, 3, 8, 8), num_steps=5)
    print(f"{images.abs().max().item():.4f}")


if __name__ == "__main__":
    main()
