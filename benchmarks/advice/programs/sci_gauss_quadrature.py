"""Integrates a parametric function with Gauss-Legendre rules of increasing order."""

import math

import numpy as np
import torch


def build_weights(orders):
    table = {}
    for order in orders:
        _, weights = np.polynomial.legendre.leggauss(order)
        table[order] = torch.tensor(weights, dtype=torch.float64)
    return table


ORDERS = range(3, 14)
WEIGHTS = build_weights(ORDERS)


def nodes(order):
    points, _ = np.polynomial.legendre.leggauss(order)
    return torch.tensor(points, dtype=torch.float64)


def integrand(t, alpha):
    return torch.exp(-alpha * t.square()) * torch.cos(3.0 * t)


@torch.compile(backend="eager")
def quadrature(points, alpha, lower, upper):
    half = 0.5 * (upper - lower)
    mid = 0.5 * (upper + lower)
    values = integrand(mid + half * points.unsqueeze(-1), alpha)
    weights = WEIGHTS[points.size(0)]
    return half * (weights.unsqueeze(-1) * values).sum(0)


def reference(alpha):
    t = torch.linspace(0.0, math.pi / 2, 20001, dtype=torch.float64).unsqueeze(-1)
    return torch.trapezoid(integrand(t, alpha), t, dim=0)


def main():
    alpha = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    lower = torch.tensor(0.0, dtype=torch.float64)
    upper = torch.tensor(math.pi / 2, dtype=torch.float64)
    exact = reference(alpha)
    for order in ORDERS:
        estimate = quadrature(nodes(order), alpha, lower, upper)
        error = (estimate - exact).abs().max().item()
        print(f"order {order:2d}: {estimate[0].item():.4f} {estimate[2].item():.4f} error {error:.4f}")


if __name__ == "__main__":
    main()
