"""Fits a small regression network on tabular data with RAdam + Lookahead written as plain functions."""

import math

import torch
from torch import nn


class RAdamLookahead:
    def __init__(self, params, lr=1e-2, betas=(0.9, 0.97), eps=1e-8, alpha=0.5, k=5):
        self.params = [p for p in params if p.requires_grad]
        self.lr, self.betas, self.eps = lr, betas, eps
        self.alpha, self.k = alpha, k
        self.exp_avg = [torch.zeros_like(p) for p in self.params]
        self.exp_avg_sq = [torch.zeros_like(p) for p in self.params]
        self.slow = [p.detach().clone() for p in self.params]
        self.steps = 0
        self.fused_update = torch.compile(self.update, backend="eager")

    def update(self, params, grads):
        beta1, beta2 = self.betas
        self.steps += 1
        rho_inf = 2 / (1 - beta2) - 1
        beta2_t = beta2**self.steps
        rho = rho_inf - 2 * self.steps * beta2_t / (1 - beta2_t)
        bias1 = 1 - beta1**self.steps
        for p, g, m, v in zip(params, grads, self.exp_avg, self.exp_avg_sq):
            m.lerp_(g, 1 - beta1)
            v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
            if rho > 5:
                rect = math.sqrt((rho - 4) * (rho - 2) * rho_inf / ((rho_inf - 4) * (rho_inf - 2) * rho))
                denom = (v / (1 - beta2_t)).sqrt().add_(self.eps)
                p.sub_(self.lr * rect / bias1 * m / denom)
            else:
                p.sub_(self.lr / bias1 * m)

    @torch.no_grad()
    def step(self):
        self.fused_update(self.params, [p.grad for p in self.params])
        if self.steps % self.k == 0:
            for p, slow in zip(self.params, self.slow):
                slow.lerp_(p, self.alpha)
                p.copy_(slow)

    def zero_grad(self):
        for p in self.params:
            p.grad = None


class TabularNet(nn.Module):
    def __init__(self, features, width=24):
        super().__init__()
        self.norm = nn.LayerNorm(features)
        self.hidden = nn.Linear(features, width)
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        return self.head(torch.tanh(self.hidden(self.norm(x)))).squeeze(-1)


def make_table(rows, features):
    x = torch.randn(rows, features)
    y = x[:, 0] * 0.7 - x[:, 1].abs() + 0.3 * torch.sin(x[:, 2])
    return x, y


def main():
    torch.manual_seed(7)
    x, y = make_table(256, 6)
    net = TabularNet(6)
    optimizer = RAdamLookahead(net.parameters())
    for epoch in range(3):
        total = 0.0
        for xb, yb in zip(x.split(64), y.split(64)):
            loss = nn.functional.mse_loss(net(xb), yb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch} mse {total / 4:.3f}")


if __name__ == "__main__":
    main()
