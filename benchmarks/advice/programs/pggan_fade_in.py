"""A progressive GAN on 1-D signals: the new resolution is faded in over the first steps of a stage."""

import torch
import torch.nn.functional as F
from torch import nn


class Generator(nn.Module):
    def __init__(self, latent=8, channels=12):
        super().__init__()
        self.project = nn.Linear(latent, channels * 8)
        self.block = nn.Conv1d(channels, channels, 3, padding=1)
        self.to_signal_low = nn.Conv1d(channels, 1, 1)
        self.to_signal = nn.Conv1d(channels, 1, 1)
        self.fade = 0.0

    def forward(self, z):
        h = F.leaky_relu(self.project(z).view(z.shape[0], -1, 8), 0.2)
        low = F.interpolate(self.to_signal_low(h), scale_factor=2.0)
        h = F.leaky_relu(self.block(F.interpolate(h, scale_factor=2.0)), 0.2)
        return torch.tanh(torch.lerp(low, self.to_signal(h), self.fade))


class Critic(nn.Module):
    def __init__(self, channels=12):
        super().__init__()
        self.from_signal = nn.Conv1d(1, channels, 1)
        self.conv = nn.Conv1d(channels, channels, 3, stride=2, padding=1)
        self.score = nn.Linear(channels * 8, 1)

    def forward(self, signal):
        h = F.leaky_relu(self.from_signal(signal), 0.2)
        h = F.leaky_relu(self.conv(h), 0.2)
        return self.score(h.flatten(1)).squeeze(1)


def real_signals(count):
    phase = torch.rand(count, 1, 1) * 6.28
    return torch.sin(torch.linspace(0, 6.28, 16) + phase)


def main(steps=6, batch_size=16):
    torch.manual_seed(3)
    netG, netD = Generator(), Critic()
    generator = torch.compile(netG, backend="eager")
    critic = torch.compile(netD, backend="eager")
    opt_g = torch.optim.Adam(netG.parameters(), lr=2e-3, betas=(0.0, 0.9))
    opt_d = torch.optim.Adam(netD.parameters(), lr=2e-3, betas=(0.0, 0.9))
    for step in range(steps):
        netG.fade = min(1.0, (step + 1) / steps)
        real = real_signals(batch_size)
        fake = generator(torch.randn(batch_size, 8))
        loss_d = F.softplus(-critic(real)).mean() + F.softplus(critic(fake.detach())).mean()
        opt_d.zero_grad()
        loss_d.backward()
        opt_d.step()

        loss_g = F.softplus(-critic(fake)).mean()
        opt_g.zero_grad()
        loss_g.backward()
        opt_g.step()
        print(f"step {step} fade {netG.fade:.2f} D {loss_d.item():.3f} G {loss_g.item():.3f}")


if __name__ == "__main__":
    main()
