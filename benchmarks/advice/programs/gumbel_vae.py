"""Categorical VAE with Gumbel-softmax; the temperature and the KL weight are annealed in an immutable config."""

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class LossConfig:
    groups: int = 6
    categories: int = 4
    temperature: float = 1.0
    kl_weight: float = 0.1
    hard: bool = False


class CategoricalVAE(nn.Module):
    def __init__(self, inputs, groups, categories, hidden=32):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, groups * categories))
        self.decoder = nn.Sequential(nn.Linear(groups * categories, hidden), nn.ReLU(), nn.Linear(hidden, inputs))

    def encode(self, x, groups, categories):
        return self.encoder(x).view(-1, groups, categories)

    def decode(self, codes):
        return self.decoder(codes.flatten(1))


def sample_codes(logits, noise, temperature, hard):
    soft = F.softmax((logits + noise) / temperature, dim=-1)
    if not hard:
        return soft
    one_hot = F.one_hot(soft.argmax(-1), soft.shape[-1]).to(soft.dtype)
    return one_hot - soft.detach() + soft


@torch.compile(backend="eager")
def elbo_loss(model, x, noise, cfg):
    logits = model.encode(x, cfg.groups, cfg.categories)
    codes = sample_codes(logits, noise, cfg.temperature, cfg.hard)
    reconstruction = F.binary_cross_entropy_with_logits(model.decode(codes), x, reduction="none").sum(1).mean()
    log_q = F.log_softmax(logits, dim=-1)
    kl = (log_q.exp() * (log_q + torch.log(torch.tensor(float(cfg.categories))))).sum((1, 2)).mean()
    return reconstruction + cfg.kl_weight * kl


class Annealer:
    def __init__(self, cfg, rate=0.9, floor=0.3, hard_from=4):
        self.cfg, self.rate, self.floor, self.hard_from = cfg, rate, floor, hard_from

    def at(self, epoch):
        temperature = max(self.floor, self.cfg.temperature * self.rate**epoch)
        return replace(self.cfg, temperature=temperature, hard=epoch >= self.hard_from)


def main():
    torch.manual_seed(0)
    cfg = LossConfig()
    model = CategoricalVAE(20, cfg.groups, cfg.categories)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    data = (torch.rand(256, 20) < torch.linspace(0.1, 0.9, 20)).float()
    annealer = Annealer(cfg)
    for epoch in range(7):
        epoch_cfg = annealer.at(epoch)
        for x in data.split(64):
            uniform = torch.rand(len(x), cfg.groups, cfg.categories).clamp(1e-6, 1 - 1e-6)
            loss = elbo_loss(model, x, -torch.log(-torch.log(uniform)), epoch_cfg)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
