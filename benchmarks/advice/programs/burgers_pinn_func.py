"""Physics-informed network for the viscous Burgers equation; derivatives through torch.func, residual over vmap."""

import math
from dataclasses import dataclass
from enum import Enum
from functools import partial

import torch
from torch import nn
from torch.func import functional_call, grad, vmap


class Sampling(Enum):
    UNIFORM = "uniform"
    STRATIFIED = "stratified"


@dataclass(frozen=True)
class Problem:
    viscosity: float = 0.01 / math.pi
    points: int = 64
    boundary: int = 32
    sampling: Sampling = Sampling.STRATIFIED


class Field(nn.Module):
    def __init__(self, width=24, depth=2):
        super().__init__()
        sizes = [2] + [width] * depth
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))
        self.head = nn.Linear(width, 1)

    def forward(self, t, x):
        h = torch.stack([t, x], dim=-1)
        for layer in self.hidden:
            h = torch.tanh(layer(h))
        return self.head(h).squeeze(-1)


def collocation(problem, generator):
    noise = torch.rand(problem.points, 2, generator=generator)
    if problem.sampling is Sampling.STRATIFIED:
        noise[:, 0] = (torch.arange(problem.points) + noise[:, 0]) / problem.points
    return noise[:, 0], 2.0 * noise[:, 1] - 1.0


def residual(field, problem, params, t, x):
    u = lambda t, x: functional_call(field, params, (t, x))
    u_t = grad(u, argnums=0)(t, x)
    u_x = grad(u, argnums=1)
    u_xx = grad(u_x, argnums=1)(t, x)
    return u_t + u(t, x) * u_x(t, x) - problem.viscosity * u_xx


def pinn_loss(field, problem, weights, t, x, start):
    params = dict(field.named_parameters())
    pointwise = vmap(partial(residual, field, problem), in_dims=(None, 0, 0))
    inner = pointwise(params, t, x).square().mean()
    initial = (field(torch.zeros_like(start), start) + torch.sin(math.pi * start)).square().mean()
    edges = torch.ones_like(start)
    walls = field(start.abs(), edges).square().mean() + field(start.abs(), -edges).square().mean()
    return weights[0] * inner + weights[1] * initial + weights[2] * walls, torch.stack([inner, initial, walls]).detach()


def main():
    torch.manual_seed(0)
    problem, field = Problem(), Field()
    generator = torch.Generator().manual_seed(1)
    step_loss = torch.compile(partial(pinn_loss, field, problem), backend="eager", fullgraph=True)
    optimizer = torch.optim.Adam(field.parameters(), lr=5e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=30)
    weights = torch.ones(3)
    start = torch.linspace(-1, 1, problem.boundary)
    for step in range(30):
        t, x = collocation(problem, generator)
        loss, parts = step_loss(weights, t, x, start)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 10 == 9:
            weights = 3.0 * torch.softmax(parts / parts.max(), dim=0)
            print(f"step {step + 1:2d} loss {loss.item():.4f} weights {[round(w, 3) for w in weights.tolist()]}")


if __name__ == "__main__":
    main()
