"""Trains a denoiser with a running loss weight, skips steps with overflow, and keeps an EMA of the weights."""

import copy

import torch
from torch import nn


class EMA(nn.Module):
    def __init__(self, model, beta=0.99, update_after=2):
        super().__init__()
        self.ema_model = copy.deepcopy(model).requires_grad_(False)
        self.beta = beta
        self.update_after = update_after
        self.num_updates = 0

    def get_decay(self):
        epoch = max(self.num_updates - self.update_after, 0)
        if epoch <= 0:
            return 0.0
        return min(self.beta, 1.0 - (1.0 + epoch) ** -0.75)

    @torch.no_grad()
    def forward(self, params):
        self.num_updates += 1
        decay = self.get_decay()
        for averaged, current in zip(self.ema_model.parameters(), params):
            averaged.lerp_(current, 1.0 - decay)


class Denoiser(nn.Module):
    def __init__(self, dim=8, hidden=32):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim + 1, hidden), nn.SiLU(), nn.Linear(hidden, dim))

    def forward(self, noisy, sigma):
        return self.net(torch.cat([noisy, sigma.log()], dim=-1))


def denoising_loss(model, clean, noise, sigma):
    noisy = clean + sigma * noise
    error = (model(noisy, sigma) - noise).square().mean(dim=-1)
    weight = 1.0 / (1.0 + sigma.squeeze(-1) ** 2)
    loss = (weight * error).mean()
    if not torch.isfinite(loss):
        return torch.zeros_like(loss, requires_grad=True)
    return loss


def main():
    torch.manual_seed(0)
    model = Denoiser()
    ema = EMA(model)
    update_ema = torch.compile(ema, backend="eager")
    compute_loss = torch.compile(denoising_loss, backend="eager")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(1)

    clean = torch.randn(64, 8, generator=generator)
    noise = torch.randn(64, 8, generator=generator)
    sigma = torch.rand(64, 1, generator=generator) + 0.1
    for step in range(12):
        loss = compute_loss(model, clean, noise, sigma)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        update_ema(list(model.parameters()))
        if step % 4 == 3:
            with torch.no_grad():
                ema_loss = denoising_loss(ema.ema_model, clean, noise, sigma)
            print(f"step {step + 1:2d} loss {loss.item():.4f} ema loss {ema_loss.item():.4f}")


if __name__ == "__main__":
    main()
