"""Fits a gamma-like decay curve to measurements: compiled loss, compiled optimizer step, decaying learning rate."""

from functools import partial

import torch

torch.manual_seed(3)
X = torch.linspace(0.1, 4.0, 64)
Y = 2.5 * X.pow(1.3) * torch.exp(-0.9 * X) + 0.01 * torch.randn(64)


class Curve(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(1.0))
        self.power = torch.nn.Parameter(torch.tensor(1.0))
        self.rate = torch.nn.Parameter(torch.tensor(0.5))

    def forward(self, x):
        return self.scale * x.pow(self.power) * torch.exp(-self.rate * x)


def huber(residual, delta):
    size = residual.abs()
    return torch.where(size < delta, 0.5 * size**2, delta * (size - 0.5 * delta))


@torch.compile(backend="aot_eager")
def objective(curve, robust, anchor):
    residual = curve(X) - Y
    return robust(residual).mean() + 1e-3 * (curve.power - anchor).square()


def fit(steps=12):
    curve = Curve()
    optimizer = torch.optim.Adam(curve.parameters(), lr=0.2)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)

    @torch.compile(backend="aot_eager")
    def update():
        optimizer.step()

    for step in range(steps):
        optimizer.zero_grad()
        loss = objective(curve, partial(huber, delta=0.5), anchor=curve.power.detach())
        loss.backward()
        update()
        scheduler.step()
        if step % 4 == 3:
            print(f"step {step + 1}: loss {loss.item():.4f}")
    return curve


def main():
    curve = fit()
    with torch.no_grad():
        error = objective(curve, partial(huber, delta=0.5), anchor=torch.tensor(1.3))
    print(f"scale {curve.scale.item():.2f} power {curve.power.item():.2f} rate {curve.rate.item():.2f} error {error.item():.4f}")


if __name__ == "__main__":
    main()
