"""Fits the parameters of an Arrhenius law to reaction rates with L-BFGS."""

import torch
from torch import nn


class Arrhenius(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_prefactor = nn.Parameter(torch.tensor(1.0, dtype=torch.float64))
        self.energy = nn.Parameter(torch.tensor(0.5, dtype=torch.float64))

    def forward(self, inverse_temperature):
        return self.log_prefactor - self.energy * inverse_temperature


def huber(residual, delta=0.5):
    small = residual.abs() <= delta
    return torch.where(small, 0.5 * residual.square(), delta * (residual.abs() - 0.5 * delta)).mean()


def fit(model, inverse_temperature, log_rate, steps=4):
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=5, line_search_fn="strong_wolfe")
    history = []

    @torch.compile(backend="eager")
    def closure():
        optimizer.zero_grad()
        prediction = model(inverse_temperature)
        penalty = 1e-3 * sum(p.square() for p in model.parameters())
        loss = huber(prediction - log_rate) + penalty
        loss.backward()
        return loss

    for _ in range(steps):
        history.append(optimizer.step(closure).item())
    return history


def main():
    inverse_temperature = torch.linspace(0.5, 3.0, 24, dtype=torch.float64)
    log_rate = 2.2 - 1.7 * inverse_temperature + 0.05 * torch.cos(9.0 * inverse_temperature)
    model = Arrhenius()
    for step, loss in enumerate(fit(model, inverse_temperature, log_rate)):
        print(f"step {step}: loss {loss:.4f}")
    print(f"log A {model.log_prefactor.item():.4f} Ea {model.energy.item():.4f}")


if __name__ == "__main__":
    main()
