"""A GAN for small images: two discriminators at different scales, spectral normalisation, flipped images in every second step."""

import contextlib

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.parametrizations import spectral_norm


class Generator(nn.Module):
    def __init__(self, z=8, width=16):
        super().__init__()
        self.fc = nn.Linear(z, width * 16)
        self.conv = nn.Conv2d(width, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)
        self.rgb = nn.Conv2d(width, 3, 1)

    def forward(self, z):
        x = self.fc(z).unflatten(1, (-1, 4, 4))
        x = F.interpolate(x, scale_factor=2)
        return self.rgb(F.relu(self.norm(self.conv(x)))).tanh()


class Discriminator(nn.Module):
    def __init__(self, name, downsample, width=12):
        super().__init__()
        self.name = name
        self.downsample = downsample
        self.conv = spectral_norm(nn.Conv2d(3, width, 3, padding=1))
        self.out = nn.Linear(width, 1)

    @torch.compile(backend="eager")
    def forward(self, x, flip):
        x = F.avg_pool2d(x, self.downsample)
        if flip:
            x = x.flip(-1)
        h = F.leaky_relu(self.conv(x), 0.2)
        return self.out(h.mean((2, 3))).squeeze(1)


@contextlib.contextmanager
def frozen(*modules):
    for module in modules:
        module.requires_grad_(False)
    try:
        yield
    finally:
        for module in modules:
            module.requires_grad_(True)


def hinge(critics, real, fake, flip):
    return sum(F.relu(1 - c(real, flip)).mean() + F.relu(1 + c(fake, flip)).mean() for c in critics)


def main():
    torch.manual_seed(0)
    generator = Generator()
    critics = [Discriminator("full", 1), Discriminator("half", 2)]
    opt_g = torch.optim.Adam(generator.parameters(), lr=1e-3)
    opt_d = torch.optim.Adam([p for c in critics for p in c.parameters()], lr=1e-3)
    gen = torch.Generator().manual_seed(1)
    for step in range(4):
        real = torch.rand(4, 3, 8, 8, generator=gen) * 2 - 1
        z = torch.randn(4, 8, generator=gen)
        flip = step % 2 == 1
        fake = generator(z)
        loss_d = hinge(critics, real, fake.detach(), flip)
        opt_d.zero_grad()
        loss_d.backward()
        opt_d.step()
        with frozen(*critics):
            loss_g = -sum(c(fake, flip).mean() for c in critics)
            opt_g.zero_grad()
            loss_g.backward()
            opt_g.step()
    print(f"d {loss_d.item():.1f} g {loss_g.item():.1f}")


if __name__ == "__main__":
    main()
