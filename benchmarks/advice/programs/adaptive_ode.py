"""Integrates a Van der Pol oscillator ensemble with an adaptive Heun-Euler pair and a PI step-size controller."""

import torch


class VanDerPol:
    def __init__(self, mu):
        self.mu = mu

    def __call__(self, t, y):
        position, velocity = y.unbind(-1)
        return torch.stack([velocity, self.mu * (1 - position**2) * velocity - position], dim=-1)


class HeunEuler:
    """Embedded second-order method; a step is accepted if the scaled error is below one."""

    def __init__(self, field, rtol=1e-3, atol=1e-4, safety=0.9):
        self.field = field
        self.rtol, self.atol, self.safety = rtol, atol, safety
        self.rejected = 0

    def error_norm(self, low, high, y):
        scale = self.atol + self.rtol * torch.maximum(y.abs(), high.abs())
        return ((high - low) / scale).square().mean().sqrt()

    def attempt(self, t, y, dt):
        k1 = self.field(t, y)
        low = y + dt * k1
        k2 = self.field(t + dt, low)
        high = y + 0.5 * dt * (k1 + k2)
        err = self.error_norm(low, high, y)
        factor = (self.safety * err.clamp(min=1e-6).rsqrt()).clamp(0.2, 3.0)
        if err <= 1.0:
            return t + dt, high, dt * factor
        return t, y, dt * factor


def integrate(solver, y0, t_end, dt0=0.05):
    attempt = torch.compile(solver.attempt, backend="aot_eager")
    t, y, dt = torch.tensor(0.0), y0, torch.tensor(dt0)
    attempts = 0
    while t < t_end:
        previous = t
        t, y, dt = attempt(t, y, torch.minimum(dt, t_end - t))
        solver.rejected += int(torch.equal(previous, t))
        attempts += 1
    return y, attempts


@torch.no_grad()
def main():
    torch.manual_seed(0)
    y0 = torch.stack([torch.linspace(0.5, 2.0, 16), torch.zeros(16)], dim=-1)
    for mu in (0.5, 1.0, 2.5):
        solver = HeunEuler(VanDerPol(mu))
        y, attempts = integrate(solver, y0, torch.tensor(2.0))
        print(f"mu {mu:.1f} attempts {attempts} rejected {solver.rejected} mean radius {y.norm(dim=-1).mean().item():.3f}")


if __name__ == "__main__":
    main()
