"""Valuation of a book of options by Monte Carlo, with deltas by autograd."""

import datetime
import enum
from dataclasses import dataclass

import torch

TODAY = datetime.date(2026, 3, 2)


class Kind(enum.Enum):
    CALL = "call"
    PUT = "put"
    DIGITAL = "digital"


@dataclass(frozen=True)
class Option:
    kind: Kind
    strike: float
    expiry: datetime.date


def make_payoff(option):
    """Return the compiled payoff of an option."""
    kind = option.kind

    @torch.compile
    def payoff(spot, strike):
        if kind is Kind.CALL:
            return (spot - strike).relu()
        if kind is Kind.PUT:
            return (strike - spot).relu()
        return torch.sigmoid(50 * (spot - strike))

    return payoff


class MonteCarlo:
    def __init__(self, paths=512, rate=0.02, volatility=0.25):
        self.normals = torch.randn(paths, generator=torch.Generator().manual_seed(11))
        self.rate = rate
        self.volatility = volatility

    @torch.compile(backend="eager")
    def terminal(self, spot, option):
        years = torch.full((), (option.expiry - TODAY).days / 365)
        drift = (self.rate - 0.5 * self.volatility**2) * years
        path = spot * torch.exp(drift + self.volatility * years.sqrt() * self.normals)
        return path, torch.exp(-self.rate * years)

    def value(self, spot, option):
        path, discount = self.terminal(spot, option)
        payoff = make_payoff(option)
        return discount * payoff(path, option.strike).mean()


def book():
    return [
        Option(Kind.CALL, 100.0, TODAY + datetime.timedelta(days=90)),
        Option(Kind.CALL, 110.0, TODAY + datetime.timedelta(days=365)),
        Option(Kind.PUT, 95.0, TODAY + datetime.timedelta(days=30)),
        Option(Kind.DIGITAL, 105.0, TODAY + datetime.timedelta(days=180)),
        Option(Kind.PUT, 80.0, TODAY + datetime.timedelta(days=60)),
    ]


def main():
    engine = MonteCarlo()
    for option in book():
        spot = torch.tensor(100.0, requires_grad=True)
        value = engine.value(spot, option)
        (delta,) = torch.autograd.grad(value, spot)
        print(f"{option.kind.value:8s} {option.strike:6.1f}: value {value.item():7.3f} delta {delta.item():7.3f}")


if __name__ == "__main__":
    main()
