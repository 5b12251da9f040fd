"""EMA of the weights with a warm-up controlled by a module level counter."""
import copy

import torch
from torch import nn

STEP = 0
WARMUP = 4


class EMA:
    def __init__(self, model, decay=0.99):
        self.decay = decay
        self.shadow = copy.deepcopy(model)
        for p in self.shadow.parameters():
            p.requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
        for s, p in zip(self.shadow.parameters(), model.parameters()):
            s.mul_(self.decay).add_(p, alpha=1 - self.decay)


def build():
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))


@torch.compile(backend="aot_eager")
def objective(model, x, y):
    err = (model(x) - y).pow(2).mean()
    w = min(1.0, STEP / WARMUP)  # DX103
    return err * w


def main():
    global STEP
    torch.manual_seed(0)
    model = build()
    ema = EMA(model)
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    x, y = torch.randn(16, 8), torch.randn(16, 1)
    for STEP in range(3):
        loss = objective(model, x, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        ema.update(model)
    with torch.no_grad():
        val = objective(model, x, y)  # DX108
    print(f"val {val.item():.4f}")


main()
