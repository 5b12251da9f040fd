"""DDIM sampler with tensor time steps; the guidance scale is a tensor too."""
import torch
from torch import nn


class Denoiser(nn.Module):
    def __init__(self, ch=8):
        super().__init__()
        self.inp = nn.Conv2d(1, ch, 3, padding=1)
        self.out = nn.Conv2d(ch, 1, 3, padding=1)
        self.temb = nn.Embedding(50, ch)
        self.cemb = nn.Embedding(4, ch)

    def forward(self, x, t, c):
        e = (self.temb(t) + self.cemb(c))[:, :, None, None]
        return self.out(torch.nn.functional.silu(self.inp(x) + e))


class DDIM:
    def __init__(self, net, steps=50):
        self.net = net
        beta = torch.linspace(1e-4, 0.02, steps)
        self.bar = torch.cumprod(1 - beta, 0)
        self.step = torch.compile(self._step, backend="aot_eager", fullgraph=True)

    def _step(self, x, t, prev, c, guidance):
        tb = t.expand(x.size(0))
        cond = self.net(x, tb, c)
        free = self.net(x, tb, torch.zeros_like(c))
        eps = free + guidance * (cond - free)
        a = self.bar[t]
        b = torch.where(prev >= 0, self.bar[prev.clamp(min=0)], torch.ones(()))
        x0 = (x - (1 - a).sqrt() * eps) / a.sqrt()
        return b.sqrt() * x0 + (1 - b).sqrt() * eps

    @torch.no_grad()
    def sample(self, n, guidance, stride=5):
        x = torch.randn(n, 1, 8, 8)
        c = torch.arange(n) % 3 + 1
        ts = torch.arange(49, -1, -stride)
        g = torch.tensor(guidance)
        for i in range(len(ts)):
            prev = ts[i + 1 : i + 2] if i + 1 < len(ts) else torch.tensor([-1])
            x = self.step(x, ts[i : i + 1], prev, c, g)
        return x


torch.manual_seed(0)
ddim = DDIM(Denoiser().eval())
for guidance in (1.0, 3.0, 7.5):
    print(guidance, ddim.sample(3, guidance).shape)
