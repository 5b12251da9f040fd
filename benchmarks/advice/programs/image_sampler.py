"""Sampling of small images by a diffusion model with classifier-free guidance and dynamic thresholding."""

import functools

import torch
from torch import nn


class TinyUNet(nn.Module):
    def __init__(self, channels=8):
        super().__init__()
        self.inp = nn.Conv2d(3, channels, 3, padding=1)
        self.mid = nn.Conv2d(channels, channels, 3, stride=2, padding=1)
        self.out = nn.Conv2d(channels, 3, 3, padding=1)
        self.cond = nn.Embedding(11, channels)

    def forward(self, x, sigma, label):
        hidden = torch.nn.functional.silu(self.inp(x) + self.cond(label)[:, :, None, None])
        coarse = self.mid(hidden * torch.rsqrt(1 + sigma * sigma))
        up = nn.functional.interpolate(coarse, scale_factor=2, mode="nearest")
        return self.out(hidden + up)


class EulerScheduler:
    def __init__(self, steps, sigma_max=5.0, sigma_min=0.1):
        ratio = sigma_min / sigma_max
        self.sigmas = [sigma_max * ratio ** (i / (steps - 1)) for i in range(steps)] + [0.0]
        self.step_index = 0

    def step(self, x, denoised):
        sigma, following = self.sigmas[self.step_index], self.sigmas[self.step_index + 1]
        derivative = (x - denoised) / sigma
        self.step_index += 1
        return x + derivative * (following - sigma)


def clamp_range(x, limit):
    return 3 * x.clamp(-limit, limit) / limit


class Pipeline:
    def __init__(self, model, steps=4, guidance=3.0):
        self.model = model
        self.scheduler = EulerScheduler(steps)
        self.guidance = guidance
        self.steps = steps

    @torch.compile
    def denoise(self, x, sigma, label, threshold):
        null = torch.full_like(label, 10)
        unconditional = self.model(x, sigma, null)
        conditional = self.model(x, sigma, label)
        return threshold(unconditional + self.guidance * (conditional - unconditional))

    @torch.no_grad()
    def __call__(self, label, seed=0):
        gen = torch.Generator().manual_seed(seed)
        x = torch.randn(len(label), 3, 16, 16, generator=gen) * self.scheduler.sigmas[0]
        advance = torch.compile(self.scheduler.step)
        for i in range(self.steps):
            sigma = torch.tensor(self.scheduler.sigmas[i])
            threshold = functools.partial(clamp_range, limit=6 - i)
            x = advance(x, self.denoise(x, sigma, label, threshold))
        return x


def main():
    torch.manual_seed(0)
    pipeline = Pipeline(TinyUNet())
    images = pipeline(torch.tensor([1, 7]))
    print(f"mean {images.mean().item():.3f} std {images.std().item():.3f}")


if __name__ == "__main__":
    main()
