"""Integrates a stiff reaction (Robertson-like) implicitly, with Newton iterations and a step size that adapts."""
import torch

RATES = (0.04, 30.0, 5.0)


def rhs(y):
    a, b, c = y.unbind(-1)
    forward = RATES[0] * a
    back = RATES[1] * b * c
    burn = RATES[2] * b * b
    return torch.stack([back - forward, forward - back - burn, burn], -1)


def jacobian(y):
    a, b, c = y.unbind(-1)
    k1, k2, k3 = RATES
    zero = torch.zeros_like(a)
    rows = [
        torch.stack([zero - k1, k2 * c, k2 * b], -1),
        torch.stack([zero + k1, -k2 * c - 2 * k3 * b, -k2 * b], -1),
        torch.stack([zero, 2 * k3 * b, zero], -1),
    ]
    return torch.stack(rows, -2)


def newton(y, dt):
    """One backward Euler step: the new state and how far it is from an explicit one."""
    guess = y.clone()
    eye = torch.eye(3, dtype=y.dtype)
    for _ in range(6):
        residual = guess - y - dt * rhs(guess)
        system = eye - dt * jacobian(guess)
        guess = guess - torch.linalg.solve(system, residual)
        if residual.abs().max() < 1e-9:
            break
    error = (guess - y - dt * rhs(y)).abs().max()
    return guess, error


def integrate(stepper, y, end):
    t, dt, taken = 0.0, 0.01, 0
    while t < end:
        y_new, error = stepper(y, dt)
        error = float(error)
        if error < 2e-2:
            t, y, taken = t + dt, y_new, taken + 1
        dt = min(dt * min(2.0, max(0.3, 0.9 * (1e-2 / (error + 1e-12)) ** 0.5)), end - t + 1e-9)
    return y, taken


def main():
    torch.manual_seed(0)
    step = torch.compile(newton, backend="eager")
    for precision in (torch.float64, torch.float32):
        start = torch.tensor([[1.0, 0.0, 0.0], [0.8, 0.1, 0.1]], dtype=precision)
        final, taken = integrate(step, start, 1.0)
        print(precision, "steps", taken)
        for row in final:
            print("  ", " ".join(f"{value:.3f}" for value in row.tolist()), f"sum {row.sum().item():.3f}")


main()
