"""Two-tower recommender with in-batch negatives; hard negatives join after a warm-up, and logs come from two pipelines."""

from collections import OrderedDict

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

hard_negatives = 0  # how many of the hardest negatives get extra weight


class Tower(nn.Module):
    def __init__(self, features, buckets=50, width=16):
        super().__init__()
        self.tables = nn.ModuleDict({name: nn.Embedding(buckets, width) for name in features})
        self.mlp = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))

    def forward(self, inputs):
        total = 0
        for name, ids in inputs.items():
            total = total + self.tables[name](ids)
        return F.normalize(self.mlp(total), dim=-1)


class TwoTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.user = Tower(["age", "city", "device"])
        self.item = Tower(["genre", "maker"])

    def forward(self, user, item, popularity):
        scores = self.user(user) @ self.item(item).T / 0.1
        correction = torch.from_numpy(np.log(popularity)).float()
        scores = scores - correction
        loss = F.cross_entropy(scores, torch.arange(scores.shape[0]))
        if hard_negatives:
            wrong = scores - 1e4 * torch.eye(scores.shape[0])
            loss = loss + 0.01 * wrong.topk(hard_negatives).values.mean()
        return loss


def batches(count=6, size=8):
    rng = np.random.default_rng(0)
    for index in range(count):
        user = OrderedDict((name, torch.from_numpy(rng.integers(0, 50, size))) for name in ("age", "city", "device"))
        if index == 3:  # traffic without a device header
            user.pop("device")
        item = {name: torch.from_numpy(rng.integers(0, 50, size)) for name in ("genre", "maker")}
        popularity = rng.uniform(0.01, 0.2, size)
        if index == 4:  # logs of the new pipeline hold float32
            popularity = popularity.astype(np.float32)
        yield user, item, popularity


def main():
    global hard_negatives
    torch.manual_seed(0)
    model = TwoTower()
    train = torch.compile(model)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    losses = []
    for index, (user, item, popularity) in enumerate(batches()):
        if index == 2:
            hard_negatives = 3
        loss = train(user, item, popularity)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(f"loss {np.mean(losses):.2f}")


if __name__ == "__main__":
    main()
