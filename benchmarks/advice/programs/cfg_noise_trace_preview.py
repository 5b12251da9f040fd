"""Samples small latents with classifier-free guidance, keeps the noise level of each step and previews the pictures."""
import math

import torch
from torch import nn


class UNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.time = nn.Linear(8, width)
        self.text = nn.Linear(12, width)
        self.inp = nn.Conv2d(4, width, 3, padding=1)
        self.mid = nn.Conv2d(width, width, 3, padding=1)
        self.out = nn.Conv2d(width, 4, 3, padding=1)

    def embed_time(self, t):
        freqs = torch.exp(torch.arange(4) * -math.log(100.0) / 4)
        return torch.cat([(t * freqs).sin(), (t * freqs).cos()], -1)

    def forward(self, x, t, text):
        h = self.inp(x) + (self.time(self.embed_time(t)) + self.text(text))[:, :, None, None]
        h = self.mid(h.relu()).relu()
        return self.out(h)


class Guided(nn.Module):
    """Guidance and the Euler step, as one compiled module."""

    def __init__(self, unet, scale):
        super().__init__()
        self.unet = unet
        self.register_buffer("scale", torch.tensor(scale))
        self.trace = []

    def forward(self, x, t, t_next, text):
        both = self.unet(torch.cat([x, x]), t, torch.cat([text, torch.zeros_like(text)]))
        cond, free = both.chunk(2)
        eps = free + self.scale * (cond - free)
        self.trace.append(eps.std())
        return x + (t_next - t) * eps


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.ConvTranspose2d(4, 8, 2, 2)
        self.rgb = nn.Conv2d(8, 3, 3, padding=1)

    def forward(self, latents):
        picture = self.rgb(self.up(latents).relu()).tanh()
        low, high = picture.amin(), picture.amax()
        if high - low < 1e-3:
            return torch.zeros_like(picture)
        print("    decoded", tuple(picture.shape))
        return (picture - low) / (high - low)


def cosine_times(steps):
    return torch.cos(torch.linspace(0, 1, steps + 1) * math.pi / 2)


def sample(stepper, text, steps=12):
    x = torch.randn(text.shape[0], 4, 8, 8)
    times = cosine_times(steps)
    for i in range(steps):
        x = stepper(x, times[i], times[i + 1], text)
    return x


torch.manual_seed(7)
guided = Guided(UNet().eval(), scale=3.0)
guided.compile(backend="eager")
decode = torch.compile(Decoder().eval(), backend="eager")
with torch.no_grad():
    for scale in (3.0, 5.5, 7.0):
        guided.scale.fill_(scale)
        guided.trace.clear()
        latents = sample(guided, torch.randn(2, 12))
        pictures = decode(latents)
        print(f"scale {scale} mean {pictures.mean():.3f} noise {guided.trace[0]:.3f} to {guided.trace[-1]:.3f}")
