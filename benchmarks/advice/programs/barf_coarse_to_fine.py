"""Fits a tiny radiance field along rays with BARF's coarse-to-fine positional encoding."""

import math

import torch
import torch.nn.functional as F
from torch import nn


def frequency_weights(progress, bands, start=0.1, end=0.5):
    alpha = (progress - start) / (end - start) * bands
    weights = []
    for band in range(bands):
        if alpha < band:
            weights.append(0.0)
        elif alpha - band < 1:
            weights.append((1 - math.cos((alpha - band) * math.pi)) / 2)
        else:
            weights.append(1.0)
    return weights


class Encoding(nn.Module):
    def __init__(self, bands=4):
        super().__init__()
        self.bands = bands
        self.register_buffer("scales", math.pi * 2.0 ** torch.arange(bands))

    def forward(self, points, progress):
        angles = points.unsqueeze(-1) * self.scales
        weights = torch.tensor(frequency_weights(progress, self.bands))
        features = torch.cat([angles.sin() * weights, angles.cos() * weights], dim=-1)
        return torch.cat([points, features.flatten(-2)], dim=-1)


class RadianceField(nn.Module):
    def __init__(self, hidden=32, bands=4):
        super().__init__()
        self.encoding = Encoding(bands)
        self.trunk = nn.Sequential(nn.Linear(3 + 6 * bands, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.sigma = nn.Linear(hidden, 1)
        self.color = nn.Linear(hidden, 3)

    def forward(self, points, progress):
        hidden = self.trunk(self.encoding(points, progress))
        return F.softplus(self.sigma(hidden)).squeeze(-1), torch.sigmoid(self.color(hidden))


@torch.compile(backend="eager")
def render(field, origins, directions, progress, samples=12, near=0.5, far=2.5):
    depth = torch.linspace(near, far, samples)
    points = origins.unsqueeze(1) + directions.unsqueeze(1) * depth.view(1, -1, 1)
    sigma, color = field(points, progress)
    alpha = 1.0 - torch.exp(-sigma * (far - near) / samples)
    through = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1.0 - alpha[:, :-1]], dim=1), dim=1)
    return ((alpha * through).unsqueeze(-1) * color).sum(dim=1)


def camera_rays(count, generator):
    angle = 2 * math.pi * torch.rand(count, generator=generator)
    origins = torch.stack([1.5 * angle.cos(), 1.5 * angle.sin(), torch.zeros(count)], dim=1)
    target = 0.3 * torch.randn(count, 3, generator=generator)
    directions = F.normalize(target - origins, dim=1)
    return origins, directions, 0.5 + 0.5 * torch.sin(3 * target)


def main():
    torch.manual_seed(0)
    field = RadianceField()
    optimizer = torch.optim.Adam(field.parameters(), lr=5e-3)
    generator = torch.Generator().manual_seed(2)
    steps = 40
    for step in range(steps):
        origins, directions, colors = camera_rays(48, generator)
        loss = F.mse_loss(render(field, origins, directions, step / steps), colors)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            print(f"step {step + 1:2d} psnr {-10 * math.log10(loss.item()):.2f}")


if __name__ == "__main__":
    main()
