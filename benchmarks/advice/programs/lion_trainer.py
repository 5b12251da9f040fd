"""Small regression run with a hand-written Lion optimizer whose step is compiled, and a linear warmup of the learning rate."""

import torch
import torch.nn.functional as F
from torch import nn


class Lion:
    """Lion (Chen et al. 2023) for plain fp32 parameters."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.99), weight_decay=0.0):
        self.params = [p for p in params if p.requires_grad]
        self.defaults = {"betas": betas, "weight_decay": weight_decay}
        self.lr = torch.tensor(lr)
        self.exp_avg = {}

    def zero_grad(self):
        for p in self.params:
            p.grad = None

    @torch.no_grad()
    def step(self):
        beta1, beta2 = self.defaults["betas"]
        for index, p in enumerate(self.params):
            if p.grad is None:
                continue
            if index not in self.exp_avg:
                self.exp_avg[index] = torch.zeros_like(p)
            momentum = self.exp_avg[index]
            p.mul_(1 - self.lr * self.defaults["weight_decay"])
            update = momentum.mul(beta1).add(p.grad, alpha=1 - beta1).sign()
            p.sub_(update * self.lr)
            momentum.mul_(beta2).add_(p.grad, alpha=1 - beta2)


class Warmup:
    def __init__(self, optimizer, base_lr, steps):
        self.optimizer, self.base_lr, self.steps = optimizer, base_lr, steps
        self.last = 0

    def step(self):
        self.last += 1
        self.optimizer.lr.fill_(self.base_lr * min(1.0, self.last / self.steps))


class Regressor(nn.Module):
    def __init__(self, features, hidden=32):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(features, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU())
        self.mean = nn.Linear(hidden, 1)
        self.aux = nn.Linear(hidden, 3)

    def forward(self, x, with_aux=False):
        h = self.backbone(x)
        return (self.mean(h), self.aux(h)) if with_aux else (self.mean(h), None)


def batches(count, rows, features):
    weight = torch.linspace(-1, 1, features)
    for _ in range(count):
        x = torch.randn(rows, features)
        y = (x @ weight).unsqueeze(1)
        yield x, y, torch.stack([y[:, 0], y[:, 0].abs(), y[:, 0].square()], dim=1)


def main():
    torch.manual_seed(3)
    model = Regressor(8)
    optimizer = Lion(model.parameters(), lr=0.0)
    schedule = Warmup(optimizer, base_lr=2e-3, steps=10)
    optimizer_step = torch.compile(optimizer.step, backend="eager")
    for index, (x, y, targets) in enumerate(batches(60, 64, 8)):
        schedule.step()
        use_aux = index >= 30
        mean, aux = model(x, with_aux=use_aux)
        loss = F.mse_loss(mean, y)
        if use_aux:
            loss = loss + 0.1 * F.mse_loss(aux, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer_step()
        if index % 15 == 14:
            print(f"batch {index + 1} loss {loss.item():.4f} lr {optimizer.lr.item():.4f}")


if __name__ == "__main__":
    main()
