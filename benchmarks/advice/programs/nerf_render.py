"""Renders small views of a radiance field in chunks of rays, between steps of training with coarse-to-fine encoding."""

import contextlib
import time
from dataclasses import dataclass

import torch
from torch import nn

TIMES: dict[str, float] = {}


@contextlib.contextmanager
def timed(name):
    start = time.perf_counter()
    yield
    TIMES[name] = TIMES.get(name, 0.0) + time.perf_counter() - start


class TruncExp(torch.autograd.Function):
    """exp whose gradient does not explode, as in instant-ngp."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.exp(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * torch.exp(x.clamp(-15, 15))


@dataclass
class RenderConfig:
    near: float = 1.0
    far: float = 3.0
    samples: int = 16
    background: str = "white"


class Field(nn.Module):
    def __init__(self, bands=4):
        super().__init__()
        self.bands = bands
        self.progress = 0.0
        self.body = nn.Sequential(nn.Linear(3 + 6 * bands, 32), nn.ReLU(), nn.Linear(32, 4))

    def encode(self, x):
        parts = [x]
        for band in range(self.bands):
            weight = min(max(self.progress * self.bands - band, 0.0), 1.0)
            parts += [weight * torch.sin(2.0**band * x), weight * torch.cos(2.0**band * x)]
        return torch.cat(parts, -1)

    def forward(self, x):
        out = self.body(self.encode(x))
        return TruncExp.apply(out[..., 0] - 1.0), torch.sigmoid(out[..., 1:])


@torch.compile(backend="eager")
def render(field, origins, directions, config):
    depth = torch.linspace(config.near, config.far, config.samples)
    with timed("field"):
        density, colour = field(origins[:, None] + depth[:, None] * directions[:, None])
    alpha = 1 - torch.exp(-density * (config.far - config.near) / config.samples)
    clear = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], -1), -1)
    weights = alpha * clear[:, :-1]
    pixel = (weights[..., None] * colour).sum(1)
    if config.background == "white":
        pixel = pixel + clear[:, -1:]
    return pixel


def camera(side):
    axis = torch.linspace(-0.5, 0.5, side)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    directions = torch.stack([x, y, torch.ones_like(x)], -1).reshape(-1, 3)
    directions = directions / directions.norm(dim=-1, keepdim=True)
    return torch.tensor([0.0, 0.0, -2.0]).expand_as(directions), directions


def view(field, config, side=20, chunk=128):
    origins, directions = camera(side)
    parts = []
    for start in range(0, side * side, chunk):
        parts.append(render(field, origins[start : start + chunk], directions[start : start + chunk], config))
    return torch.cat(parts).reshape(side, side, 3)


def main():
    torch.manual_seed(0)
    field, config = Field(), RenderConfig()
    optimizer = torch.optim.Adam(field.parameters(), lr=5e-3)
    target = torch.tensor([0.8, 0.3, 0.2])
    for epoch in range(5):
        field.progress = epoch / 4
        loss = ((view(field, config) - target) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")
    print(sorted(TIMES))


if __name__ == "__main__":
    main()
