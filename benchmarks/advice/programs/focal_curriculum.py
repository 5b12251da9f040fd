"""Imbalanced fraud detection on tabular data; the focal loss hardens over epochs and rows with missing columns come late."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import nn


def focal_loss(logits, target, gamma, pos_weight):
    ce = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
    p_t = torch.exp(-ce)
    weight = torch.where(target > 0.5, pos_weight, 1.0)
    return (weight * (1.0 - p_t) ** gamma * ce).mean()


class FraudNet(nn.Module):
    def __init__(self, columns=8, hidden=32):
        super().__init__()
        self.missing = nn.Parameter(torch.zeros(columns))
        self.net = nn.Sequential(nn.Linear(2 * columns, hidden), nn.GELU(), nn.Linear(hidden, 1))

    def forward(self, rows, observed=None):
        if observed is None:
            observed = torch.ones_like(rows)
        filled = torch.where(observed > 0.5, rows, self.missing)
        return self.net(torch.cat([filled, observed], dim=1)).squeeze(1)


class Curriculum:
    def __init__(self, epochs, gamma_max=2.0, missing_from=2):
        self.epochs, self.gamma_max, self.missing_from = epochs, gamma_max, missing_from

    def criterion(self, epoch):
        gamma = self.gamma_max * epoch / max(self.epochs - 1, 1)
        return partial(focal_loss, gamma=gamma, pos_weight=4.0)

    def mask(self, epoch, rows):
        if epoch < self.missing_from:
            return None
        return (torch.rand_like(rows) > 0.25).float()


@torch.compile(backend="eager")
def training_loss(model, criterion, rows, target, observed):
    return criterion(model(rows, observed), target)


def main():
    torch.manual_seed(0)
    model = FraudNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    curriculum = Curriculum(epochs=5)
    rows = torch.randn(192, 8)
    target = ((rows[:, 0] + rows[:, 3] * rows[:, 5]) > 1.6).float()
    for epoch in range(curriculum.epochs):
        criterion = curriculum.criterion(epoch)
        total = 0.0
        for index in torch.randperm(192).split(48):
            batch = rows[index]
            loss = training_loss(model, criterion, batch, target[index], curriculum.mask(epoch, batch))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        with torch.no_grad():
            recall = ((model(rows) > 0) & (target > 0)).sum() / target.sum()
        print(f"epoch {epoch + 1} loss {total / 4:.4f} recall {recall.item():.3f}")


if __name__ == "__main__":
    main()
