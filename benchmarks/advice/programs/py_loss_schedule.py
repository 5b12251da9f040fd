"""Trains a regressor with a loss that anneals from one epoch to the next."""

import functools

import torch
import torch.nn.functional as F
from torch import nn


def focal_l1(prediction, target, gamma, beta=1.0):
    loss = F.smooth_l1_loss(prediction, target, beta=beta, reduction="none")
    return (loss * (1.0 - torch.exp(-loss)) ** gamma).mean()


def make_losses(epochs):
    return [functools.partial(focal_l1, gamma=2.0 * epoch / epochs) for epoch in range(epochs)]


def make_regularisers(model, strengths):
    def weight_decay(strength):
        def penalty():
            return strength * sum(p.abs().sum() for p in model.parameters())

        return penalty

    return [weight_decay(strength) for strength in strengths]


@torch.compile(backend="eager")
def objective(model, criterion, regulariser, x, y):
    return criterion(model(x), y) + regulariser()


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(32, 4)
    y = x.square().sum(1, keepdim=True) / 4
    regularisers = make_regularisers(model, (0.01, 0.001))
    for epoch, criterion in enumerate(make_losses(5)):
        for _ in range(3):
            optimizer.zero_grad()
            loss = objective(model, criterion, regularisers[epoch // 3], x, y)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
