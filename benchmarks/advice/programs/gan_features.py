"""A small GAN with feature matching: the features of the discriminator come from a forward hook."""

import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm


class Generator(nn.Module):
    def __init__(self, latent=8, width=32):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(latent, width), nn.LeakyReLU(0.2), nn.Linear(width, 16), nn.Tanh())

    def forward(self, z):
        return self.body(z)


class Discriminator(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.features = nn.Sequential(spectral_norm(nn.Linear(16, width)), nn.LeakyReLU(0.2))
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        return self.head(self.features(x)).squeeze(-1)


def real_batch(step, size=24):
    generator = torch.Generator().manual_seed(step)
    phase = 6.28 * torch.rand(size, 1, generator=generator)
    return torch.sin(phase + torch.linspace(0, 3, 16))


class Trainer:
    def __init__(self):
        self.g, self.d = Generator(), Discriminator()
        self.opt_g = torch.optim.Adam(self.g.parameters(), lr=1e-3)
        self.opt_d = torch.optim.Adam(self.d.parameters(), lr=1e-3)
        self.seen = []
        self.d.features.register_forward_hook(lambda module, args, output: self.seen.append(output))
        self.judge = torch.compile(self.d, backend="eager")
        self.generator = torch.Generator().manual_seed(9)

    def latent(self, size=24):
        return torch.randn(size, 8, generator=self.generator)

    def train_discriminator(self, real):
        fake = self.g(self.latent()).detach()
        loss = torch.relu(1 - self.judge(real)).mean() + torch.relu(1 + self.judge(fake)).mean()
        self.opt_d.zero_grad()
        loss.backward()
        self.opt_d.step()
        return loss.item()

    def train_generator(self, real, step):
        self.seen.clear()
        score = self.judge(self.g(self.latent()))
        self.judge(real)
        matching = (self.seen[0].mean(0) - self.seen[1].mean(0)).pow(2).mean()
        loss = -score.mean() + min(step / 4, 1.0) * matching
        self.opt_g.zero_grad()
        loss.backward()
        self.opt_g.step()
        return loss.item()


def main():
    torch.manual_seed(0)
    trainer = Trainer()
    for step in range(6):
        real = real_batch(step)
        loss_d = trainer.train_discriminator(real)
        loss_g = trainer.train_generator(real, step)
        print(f"step {step}: d {loss_d:.3f}, g {loss_g:.3f}")


if __name__ == "__main__":
    main()
