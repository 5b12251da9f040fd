"""Fit a neural ODE to a pendulum: adaptive step size in Python, a custom autograd Function, and a step built for each trajectory."""

import math

import torch
import torch.nn as nn


class ClipGrad(torch.autograd.Function):
    """Identity whose gradient is clipped, as the adjoint explodes early in training."""

    @staticmethod
    def forward(ctx, x, bound):
        ctx.bound = bound
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad.clamp(-ctx.bound, ctx.bound), None


class Field(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, 2))

    def forward(self, y):
        return self.net(y)


def make_stepper(field, damping):
    """Return a midpoint step with an error estimate, for a trajectory with its own damping."""

    def step(y, dt):
        k1 = field(y) - damping * y
        k2 = field(y + 0.5 * dt * k1) - damping * y
        error = (dt * (k2 - k1)).abs().max()
        return y + dt * k2, error

    return torch.compile(step, backend="aot_eager")


def integrate(stepper, y, t_end, tolerance=0.03):
    t, dt, taken = 0.0, 0.1, 0
    while t < t_end - 1e-9:
        dt = min(dt, t_end - t)
        proposal, error = stepper(y, dt)
        if error.item() < tolerance:
            y, t, taken = ClipGrad.apply(proposal, 1.0), t + dt, taken + 1
            dt *= 1.5
        else:
            dt *= 0.5
    return y, taken


def pendulum(angle, damping, t_end, dt=1e-3):
    speed = 0.0
    for _ in range(int(t_end / dt)):
        speed -= dt * (math.sin(angle) + damping * speed)
        angle += dt * speed
    return torch.tensor([angle, speed])


def main():
    torch.manual_seed(0)
    field = Field()
    optimizer = torch.optim.Adam(field.parameters(), lr=0.02)
    steps, losses = 0, []
    for trajectory, damping in enumerate([0.1, 0.2, 0.1, 0.4]):
        stepper = make_stepper(field, damping)
        start = torch.tensor([0.5 + 0.2 * trajectory, 0.0])
        end, taken = integrate(stepper, start, 1.0)
        loss = (end - pendulum(start[0].item(), damping, 1.0)).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += taken
        losses.append(loss.item())
    print(f"{steps} steps, loss {losses[0]:.1f} {losses[-1]:.1f}")


if __name__ == "__main__":
    main()
