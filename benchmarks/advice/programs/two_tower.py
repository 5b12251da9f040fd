"""Two-tower recommender: a registry of feature encoders, batches as dicts in which context features may be missing."""

import torch
import torch.nn.functional as F
from torch import nn

ENCODERS = {}


def register(kind):
    def add(cls):
        ENCODERS[kind] = cls
        return cls

    return add


@register("id")
class IdEncoder(nn.Module):
    def __init__(self, dim, size):
        super().__init__()
        self.table = nn.Embedding(size, dim)

    def forward(self, values):
        return self.table(values)


@register("number")
class NumberEncoder(nn.Module):
    def __init__(self, dim, size):
        super().__init__()
        self.linear = nn.Linear(size, dim)

    def forward(self, values):
        return self.linear(torch.log1p(values))


SCHEMA = {
    "user": {"user_id": ("id", 50), "age": ("number", 1), "device": ("id", 4), "dwell": ("number", 2)},
    "item": {"item_id": ("id", 80), "price": ("number", 1)},
}


class Tower(nn.Module):
    def __init__(self, features, dim):
        super().__init__()
        self.encoders = nn.ModuleDict({name: ENCODERS[kind](dim, size) for name, (kind, size) in features.items()})
        self.head = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, dim))

    def forward(self, batch):
        total = sum(self.encoders[name](values) for name, values in batch.items())
        return F.normalize(self.head(total), dim=1)


class TwoTower(nn.Module):
    def __init__(self, schema, dim=16):
        super().__init__()
        self.towers = nn.ModuleDict({side: Tower(features, dim) for side, features in schema.items()})
        self.scale = nn.Parameter(torch.tensor(5.0))

    def forward(self, batch):
        user, item = self.towers["user"](batch["user"]), self.towers["item"](batch["item"])
        return self.scale * user @ item.T


def make_batch(rng, rows, missing):
    batch = {}
    for side, features in SCHEMA.items():
        batch[side] = {}
        for name, (kind, size) in features.items():
            if name in missing:
                continue
            if kind == "id":
                batch[side][name] = torch.randint(size, (rows,), generator=rng)
            else:
                batch[side][name] = torch.rand(rows, size, generator=rng)
    return batch


def main():
    torch.manual_seed(0)
    rng = torch.Generator().manual_seed(7)
    model = TwoTower(SCHEMA)
    score = torch.compile(model, backend="eager")
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    sources = [(), ("dwell",), ("device", "dwell"), (), ("device",), ("dwell",)]
    for epoch in range(3):
        for missing in sources:
            logits = score(make_batch(rng, 32, missing))
            loss = F.cross_entropy(logits, torch.arange(32))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f} scale {model.scale.item():.3f}")


if __name__ == "__main__":
    main()
