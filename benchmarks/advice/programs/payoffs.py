"""Monte Carlo prices of a book of options: one compiled pricer gets the payoff of each contract as a function."""

import math

import torch

SPOT, RATE, VOL = 100.0, 0.02, 0.25


def paths(n=2000, steps=12, seed=5):
    gen = torch.Generator().manual_seed(seed)
    dt = 1 / steps
    z = torch.randn(n, steps, generator=gen, dtype=torch.float64)
    logs = ((RATE - VOL**2 / 2) * dt + VOL * math.sqrt(dt) * z).cumsum(1)
    return SPOT * logs.exp()


def call(strike):
    return lambda s: (s[:, -1] - strike).clamp(min=0)


def put(strike):
    return lambda s: (strike - s[:, -1]).clamp(min=0)


def asian(strike):
    return lambda s: (s.mean(1) - strike).clamp(min=0)


@torch.compile(backend="eager")
def price(simulated, payoff):
    values = payoff(simulated) * math.exp(-RATE)
    return values.mean(), values.std()


def book():
    contracts = []
    for strike in (90.0, 95.0, 100.0, 105.0):
        contracts.append(("call", strike, call(strike)))
        contracts.append(("put", strike, put(strike)))
        contracts.append(("asian", strike, asian(strike)))
    return contracts


def main():
    simulated = paths()
    total = 0.0
    for kind, strike, payoff in book():
        mean, spread = price(simulated, payoff)
        total += mean.item()
        print(f"{kind:5s} {strike:.0f}: {mean.item():.3f} +- {spread.item() / math.sqrt(len(simulated)):.3f}")
    print(f"book {total:.3f}")


if __name__ == "__main__":
    main()
