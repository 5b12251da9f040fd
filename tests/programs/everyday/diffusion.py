"""DDPM sampler: python int time step indexes a python list of constants."""
import math

import torch
from torch import nn


def cosine_alphas(steps):
    f = [math.cos((t / steps + 0.008) / 1.008 * math.pi / 2) ** 2 for t in range(steps + 1)]
    return [max(f[t + 1] / f[t], 1e-3) for t in range(steps)]


class Unet(nn.Module):
    def __init__(self, ch=8):
        super().__init__()
        self.inc = nn.Conv2d(3, ch, 3, padding=1)
        self.mid = nn.Conv2d(ch, ch, 3, padding=1)
        self.out = nn.Conv2d(ch, 3, 3, padding=1)
        self.time = nn.Linear(1, ch)

    def forward(self, x, t):
        e = self.time(t)[:, :, None, None]
        h = torch.relu(self.inc(x)) + e
        return self.out(torch.relu(self.mid(h)))


class Sampler:
    def __init__(self, net, steps=10):
        self.net = net
        self.steps = steps
        self.alpha = cosine_alphas(steps)
        self.bar = [math.prod(self.alpha[: i + 1]) for i in range(steps)]
        self.denoise = torch.compile(self._denoise, backend="eager")

    def _denoise(self, x, t):
        tt = torch.full((x.size(0), 1), t / self.steps)
        eps = self.net(x, tt)
        a, b = self.alpha[t], self.bar[t]  # DX301
        mean = (x - (1 - a) / math.sqrt(1 - b) * eps) / math.sqrt(a)
        noise = torch.randn_like(x) if t > 0 else torch.zeros_like(x)
        return mean + math.sqrt(1 - a) * noise

    @torch.no_grad()
    def sample(self, n):
        x = torch.randn(n, 3, 8, 8)
        for t in reversed(range(self.steps)):
            x = self.denoise(x, t)
        return x


@torch.compile(backend="eager")
def to_unit(img):
    return (img.float() / 2 + 0.5).clamp(0, 1)  # DX105


torch.manual_seed(0)
s = Sampler(Unet().eval())
img = s.sample(2)
full, preview = to_unit(img), to_unit(img.half())
print((full - preview).abs().max() < 0.01)
