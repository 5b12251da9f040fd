"""Finetunes a small GAN with FreezeD (lower discriminator layers frozen late in training) and annealed instance noise."""

import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn


class Generator(nn.Module):
    def __init__(self, z_dim=8, hidden=32):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(z_dim, hidden), nn.LeakyReLU(0.2), nn.Linear(hidden, hidden), nn.LeakyReLU(0.2), nn.Linear(hidden, 2)
        )

    def forward(self, z):
        return self.net(z)


class Discriminator(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(2, hidden), nn.LeakyReLU(0.2), nn.Linear(hidden, hidden), nn.LeakyReLU(0.2))
        self.head = nn.Linear(hidden, 1)

    def forward(self, points):
        return self.head(self.trunk(points)).squeeze(-1)


def ring(n, modes=8, radius=2.0):
    angle = torch.randint(modes, (n,)) * (2 * math.pi / modes)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1) + 0.05 * torch.randn(n, 2)


class Trainer:
    def __init__(self, args):
        self.args = args
        self.netG, self.netD = Generator(args.z_dim), Discriminator()
        self.optG = torch.optim.Adam(self.netG.parameters(), lr=args.lr, betas=(0.5, 0.99))
        self.optD = torch.optim.Adam(self.netD.parameters(), lr=args.lr, betas=(0.5, 0.99))
        self.d_loss = torch.compile(self.d_loss, backend="eager")

    def d_loss(self, real, fake, sigma):
        if sigma > 0:
            real = real + sigma * torch.randn_like(real)
            fake = fake + sigma * torch.randn_like(fake)
        return F.softplus(-self.netD(real)).mean() + F.softplus(self.netD(fake)).mean()

    def g_loss(self, fake):
        return F.softplus(-self.netD(fake)).mean()

    def noise_level(self, step):
        return max(0.0, 0.3 * (1.0 - step / self.args.noise_steps))

    def train_step(self, step):
        if step == self.args.freeze_at:
            for param in self.netD.trunk.parameters():
                param.requires_grad_(False)
        z = torch.randn(self.args.batch_size, self.args.z_dim)
        with torch.no_grad():
            fake = self.netG(z)
        loss_d = self.d_loss(ring(self.args.batch_size), fake, self.noise_level(step))
        self.optD.zero_grad()
        loss_d.backward()
        self.optD.step()
        loss_g = self.g_loss(self.netG(z))
        self.optG.zero_grad()
        loss_g.backward()
        self.optG.step()
        return loss_d.item(), loss_g.item()

    def fit(self):
        for step in range(self.args.steps):
            loss_d, loss_g = self.train_step(step)
            if (step + 1) % 6 == 0:
                print(f"step {step + 1:3d} loss_d {loss_d:.3f} loss_g {loss_g:.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--z-dim", type=int, default=8)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--noise-steps", type=int, default=12)
    parser.add_argument("--freeze-at", type=int, default=20)
    torch.manual_seed(0)
    Trainer(parser.parse_args()).fit()
