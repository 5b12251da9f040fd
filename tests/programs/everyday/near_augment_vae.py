"""VAE with augmentation; random choices are made outside, the config is a dataclass."""
import random
from dataclasses import dataclass, field

import torch
from torch import nn


@dataclass
class Config:
    latent: int = 4
    hidden: list = field(default_factory=lambda: [32, 16])
    beta: float = 0.5
    act: str = "relu"


ACTS = {"relu": nn.ReLU, "gelu": nn.GELU}


class Augment:
    """Like a torchvision transform: runs on the CPU before the model."""

    def __call__(self, img):
        if random.random() < 0.5:
            img = img.flip(-1)
        i, j = random.randint(0, 2), random.randint(0, 2)
        return img[..., i : i + 8, j : j + 8].contiguous()


class VAE(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        dims = [64] + cfg.hidden
        layers = []
        for a, b in zip(dims, dims[1:]):
            layers += [nn.Linear(a, b), ACTS[cfg.act]()]
        self.enc = nn.Sequential(*layers, nn.Linear(dims[-1], 2 * cfg.latent))
        self.dec = nn.Linear(cfg.latent, 64)

    def forward(self, x):
        flat = x.flatten(1)
        mu, logvar = self.enc(flat).chunk(2, -1)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        rec = self.dec(z)
        kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(-1)
        terms = {"rec": (rec - flat).pow(2).sum(-1).mean(), "kl": kl.mean()}
        terms["loss"] = terms["rec"] + self.cfg.beta * terms["kl"]
        return terms


def main():
    random.seed(0)
    torch.manual_seed(0)
    aug = Augment()
    net = VAE(Config())
    model = torch.compile(net, backend="aot_eager")
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    images = torch.rand(24, 1, 10, 10)
    for _ in range(2):
        for chunk in images.split(8):
            x = torch.stack([aug(im) for im in chunk])
            terms = model(x)
            opt.zero_grad()
            terms["loss"].backward()
            opt.step()
    print({k: round(v.item(), 2) for k, v in terms.items()})


main()
