"""Relaxes water clusters under a Lennard-Jones and Coulomb field: float32 descent, then a float64 polish for frequencies."""

import torch

CHARGES = {"O": -0.82, "H": 0.41}
SIGMA = {"O": 3.0, "H": 1.2}


def cluster(molecules, seed):
    g = torch.Generator().manual_seed(seed)
    symbols, coordinates = [], []
    for number in range(molecules):
        centre = 3.2 * torch.tensor([number % 2, number // 2 % 2, number // 4], dtype=torch.float32)
        centre = centre + 0.1 * torch.randn(3, generator=g)
        for symbol, offset in (("O", (0.0, 0.0, 0.0)), ("H", (0.96, 0.0, 0.0)), ("H", (-0.24, 0.93, 0.0))):
            symbols.append(symbol)
            coordinates.append(centre + torch.tensor(offset))
    return symbols, torch.stack(coordinates)


def pair_table(symbols, dtype):
    """Charges, radii and bond mask of all pairs, as tensors."""
    q = torch.tensor([CHARGES[s] for s in symbols], dtype=dtype)
    s = torch.tensor([SIGMA[s] for s in symbols], dtype=dtype)
    molecule = torch.arange(len(symbols)) // 3
    bonded = molecule[:, None] == molecule[None, :]
    return q[:, None] * q[None, :], (s[:, None] + s[None, :]) / 2, bonded


def energy(x, reference, charges, sigma, bonded):
    eye = torch.eye(x.shape[0], dtype=torch.bool)
    d = (x[:, None] - x[None, :]).square().sum(-1).masked_fill(eye, 1.0).sqrt()
    d0 = (reference[:, None] - reference[None, :]).square().sum(-1).masked_fill(eye, 1.0).sqrt()
    ratio = (sigma / d.clamp_min(1.0)) ** 6
    nonbonded = 0.15 * (ratio * ratio - ratio) + 5.0 * charges / d
    bonds = 50.0 * (d - d0).square()
    return 0.5 * torch.where(bonded, bonds, nonbonded).masked_fill(eye, 0.0).sum()


@torch.compile
def descend(x, reference, charges, sigma, bonded, rate):
    value, gradient = torch.func.grad_and_value(energy)(x, reference, charges, sigma, bonded)[::-1]
    longest = gradient.norm(dim=-1).amax().clamp_min(1.0)
    return x - rate * gradient / longest, value


def relax(x, symbols, dtype, steps, rate):
    x = x.to(dtype)
    table = pair_table(symbols, dtype)
    reference = x.clone()
    step = torch.tensor(rate, dtype=dtype)
    for _ in range(steps):
        x, value = descend(x, reference, *table, step)
    return x, value


def main():
    symbols, x = cluster(4, seed=0)
    x, value = relax(x, symbols, torch.float32, steps=20, rate=0.01)
    print(f"float32: {value.item():.3f}")
    x, value = relax(x, symbols, torch.float64, steps=20, rate=0.002)
    print(f"float64: {value.item():.3f}")
    oxygen = x[[i for i, s in enumerate(symbols) if s == "O"]]
    print("O-O", [f"{v:.2f}" for v in torch.pdist(oxygen).tolist()])


if __name__ == "__main__":
    main()
