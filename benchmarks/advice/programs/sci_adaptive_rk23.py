"""Integrates a stiff-ish predator-prey system with an adaptive Bogacki-Shampine method."""

import torch


class RK23:
    def __init__(self, func, rtol=1e-5, atol=1e-7):
        self.func = func
        self.rtol = rtol
        self.atol = atol
        self.accepted = 0
        self.rejected = 0

    def stages(self, t, y, dt):
        k1 = self.func(t, y)
        k2 = self.func(t + 0.5 * dt, y + 0.5 * dt * k1)
        k3 = self.func(t + 0.75 * dt, y + 0.75 * dt * k2)
        y_new = y + dt * (2.0 * k1 + 3.0 * k2 + 4.0 * k3) / 9.0
        k4 = self.func(t + dt, y_new)
        error = dt * (-5.0 / 72.0 * k1 + k2 / 12.0 + k3 / 9.0 - k4 / 8.0)
        return y_new, error

    @torch.compile(backend="eager")
    def try_step(self, t, y, dt):
        y_new, error = self.stages(t, y, dt)
        scale = self.atol + self.rtol * torch.maximum(y.abs(), y_new.abs())
        ratio = (error / scale).square().mean().sqrt()
        factor = (0.9 * ratio.clamp(min=1e-10) ** (-1.0 / 3.0)).clamp(0.2, 5.0)
        if ratio <= 1.0:
            return t + dt, y_new, dt * factor, True
        return t, y, dt * factor.clamp(max=1.0), False

    def integrate(self, y, t_end, dt):
        t = torch.zeros((), dtype=y.dtype)
        while t < t_end:
            dt = torch.minimum(dt, t_end - t)
            t, y, dt, ok = self.try_step(t, y, dt)
            if ok:
                self.accepted += 1
            else:
                self.rejected += 1
        return y


def predator_prey(t, y):
    prey, predator = y.unbind(-1)
    season = 1.0 + 0.3 * torch.sin(2.0 * t)
    return torch.stack((prey * (1.2 * season - 0.6 * predator), predator * (0.3 * prey - 0.8)), dim=-1)


def main():
    y0 = torch.tensor([[2.0, 1.0], [1.0, 3.0]], dtype=torch.float64)
    solver = RK23(predator_prey)
    y = solver.integrate(y0, torch.tensor(4.0, dtype=torch.float64), torch.tensor(1.0, dtype=torch.float64))
    for prey, predator in y.tolist():
        print(f"prey {prey:.4f} predator {predator:.4f}")
    print(f"accepted {solver.accepted} rejected {solver.rejected}")


if __name__ == "__main__":
    main()
