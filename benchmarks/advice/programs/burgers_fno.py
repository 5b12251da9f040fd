"""Learns a spectral correction of a coarse Burgers solver: a differentiable solver with a custom limiter in the loop."""

import math
from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True)
class Grid:
    points: int = 64
    length: float = 2 * math.pi
    viscosity: float = 0.05
    dt: float = 0.01
    substeps: int = 4

    @property
    def dx(self):
        return self.length / self.points


class SoftLimit(torch.autograd.Function):
    """Clamps the slope; the gradient passes where the slope is inside and is damped outside."""

    @staticmethod
    def forward(ctx, slope, bound):
        ctx.save_for_backward(slope)
        ctx.bound = bound
        return slope.clamp(-bound, bound)

    @staticmethod
    def backward(ctx, grad):
        (slope,) = ctx.saved_tensors
        return torch.where(slope.abs() <= ctx.bound, grad, 0.1 * grad), None


class SpectralCorrection(nn.Module):
    def __init__(self, modes=8, width=6):
        super().__init__()
        self.modes = modes
        self.lift = nn.Linear(1, width)
        self.weight = nn.Parameter(0.05 * torch.randn(width, modes, 2))
        self.drop = nn.Linear(width, 1)

    def forward(self, u):
        h = self.lift(u.unsqueeze(-1)).transpose(1, 2)
        spectrum = torch.fft.rfft(h)
        low = spectrum[..., : self.modes] * torch.view_as_complex(self.weight)
        h = torch.fft.irfft(low, n=u.shape[-1])
        return self.drop(torch.tanh(h).transpose(1, 2)).squeeze(-1)


class HybridSolver(nn.Module):
    def __init__(self, grid):
        super().__init__()
        self.grid = grid
        self.correction = SpectralCorrection()
        self.calls = 0

    def substep(self, u):
        slope = SoftLimit.apply((torch.roll(u, -1, -1) - torch.roll(u, 1, -1)) / (2 * self.grid.dx), 4.0)
        laplace = (torch.roll(u, -1, -1) - 2 * u + torch.roll(u, 1, -1)) / self.grid.dx**2
        return u + self.grid.dt * (self.grid.viscosity * laplace - u * slope)

    def forward(self, u):
        for _ in range(self.grid.substeps):
            u = self.substep(u)
        return u + self.grid.dt * self.correction(u)


def initial(rows, grid, rng):
    x = torch.arange(grid.points) * grid.dx
    phase = 2 * math.pi * torch.rand(rows, 1, generator=rng)
    return torch.sin(x + phase) + 0.3 * torch.cos(2 * x - phase)


def main():
    torch.manual_seed(0)
    rng = torch.Generator().manual_seed(2)
    grid = Grid()
    solver = HybridSolver(grid)
    advance = torch.compile(solver, backend="aot_eager", fullgraph=True)
    optimizer = torch.optim.Adam(solver.parameters(), lr=2e-2)
    history = []
    for iteration in range(20):
        u = initial(8, grid, rng).requires_grad_()
        goal = u.detach() * math.exp(-0.05 * grid.viscosity)
        rollout = u
        for _ in range(3):
            rollout = advance(rollout)
            solver.calls += 1
        loss = (rollout - goal).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss.item())
    print(f"first {history[0]:.5f} last {history[-1]:.5f} solver calls {solver.calls}")


if __name__ == "__main__":
    main()
