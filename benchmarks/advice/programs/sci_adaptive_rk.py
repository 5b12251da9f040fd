"""Integrates a damped pendulum with an adaptive embedded Runge-Kutta pair (Bogacki-Shampine 3(2))."""

from dataclasses import dataclass, field

import torch


@dataclass
class Stats:
    accepted: int = 0
    rejected: int = 0
    steps: list = field(default_factory=list)


def pendulum(t, y, damping=0.15):
    angle, speed = y.unbind(-1)
    return torch.stack([speed, -damping * speed - 9.81 * torch.sin(angle)], dim=-1)


class BogackiShampine:
    def __init__(self, rhs, rtol=1e-4, atol=1e-6):
        self.rhs = rhs
        self.rtol = rtol
        self.atol = atol
        self.stats = Stats()

    @torch.compile(backend="eager")
    def trial(self, time, y, dt):
        k1 = self.rhs(time, y)
        k2 = self.rhs(time + dt / 2, y + dt * k1 / 2)
        k3 = self.rhs(time + 3 * dt / 4, y + 3 * dt * k2 / 4)
        new = y + dt * (2 * k1 + 3 * k2 + 4 * k3) / 9
        k4 = self.rhs(time + dt, new)
        error = dt * (-5 * k1 / 72 + k2 / 12 + k3 / 9 - k4 / 8)
        scale = self.atol + self.rtol * torch.maximum(y.abs(), new.abs())
        return new, (error / scale).pow(2).mean().sqrt()

    def solve(self, y, t_end, dt=0.05):
        time = 0.0
        while time < t_end:
            dt = min(dt, t_end - time)
            new, ratio = self.trial(time, y, dt)
            ratio = max(ratio.item(), 1e-6)
            if ratio <= 1.0:
                time, y = time + dt, new
                self.stats.accepted += 1
                self.stats.steps.append(dt)
            else:
                self.stats.rejected += 1
            dt = dt * min(3.0, max(0.3, 0.9 * ratio ** (-1 / 3)))
        return y


def main():
    torch.manual_seed(0)
    start = torch.tensor([[2.5, 0.0], [0.3, 1.0]], dtype=torch.float64)
    solver = BogackiShampine(pendulum)
    for t_end in (0.5, 1.0, 2.0):
        end = solver.solve(start, t_end)
        print(f"t={t_end} angle {end[:, 0].tolist()[0]:.5f} {end[:, 0].tolist()[1]:.5f} accepted {solver.stats.accepted}")
    print(f"rejected {solver.stats.rejected} largest step {max(solver.stats.steps):.4f}")


if __name__ == "__main__":
    main()
