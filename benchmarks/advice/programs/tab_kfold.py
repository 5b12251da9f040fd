"""Cross-validation of a regressor on a table with numeric and categorical columns and missing values."""

import time
from collections import defaultdict
from contextlib import contextmanager

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

NUMERIC = ("age", "income", "tenure")
CATEGORIES = {"region": 5, "plan": 3}
TIMES = defaultdict(float)


@contextmanager
def timed(stage):
    start = time.perf_counter()
    try:
        yield
    finally:
        TIMES[stage] += time.perf_counter() - start


class Regressor(nn.Module):
    def __init__(self, dim=4):
        super().__init__()
        self.embed = nn.ModuleDict({name: nn.Embedding(count, dim) for name, count in CATEGORIES.items()})
        self.net = nn.Sequential(nn.Linear(len(NUMERIC) + dim * len(CATEGORIES), 32), nn.SiLU(), nn.Linear(32, 1))

    def forward(self, row):
        columns = [row[name].unsqueeze(1) for name in NUMERIC]
        columns += [self.embed[name](row[name]) for name in CATEGORIES]
        return self.net(torch.cat(columns, dim=1)).squeeze(1)


def make_prepare(train):
    """Imputes and standardizes by the statistics of the training fold."""
    means = {name: float(np.nanmean(train[name])) for name in NUMERIC}
    stds = {name: float(np.nanstd(train[name])) for name in NUMERIC}

    @torch.compile(backend="eager")
    def prepare(row):
        out = dict(row)
        for name in NUMERIC:
            filled = torch.where(row[name].isnan(), means[name], row[name])
            out[name] = ((filled - means[name]) / stds[name]).float()
        return out

    return prepare


@torch.compile(backend="eager")
def objective(model, row, target, loss):
    with timed("forward"):
        predicted = model(row)
    return loss(predicted, target)


def table(rows, seed):
    rng = np.random.default_rng(seed)
    data = {
        "age": rng.normal(40, 12, rows),
        "income": rng.lognormal(10, 0.4, rows),
        "tenure": rng.exponential(3, rows),
        "region": rng.integers(0, 5, rows),
        "plan": rng.integers(0, 3, rows),
    }
    target = 0.03 * data["age"] + 0.2 * data["tenure"] + 0.5 * data["plan"] + 0.1 * rng.standard_normal(rows)
    for name in ("income", "tenure"):
        data[name][rng.random(rows) < 0.1] = np.nan
    return data, torch.from_numpy(target.astype(np.float32))


def take(rows, index):
    return {name: column[index] for name, column in rows.items()}


def main():
    data, targets = table(rows=200, seed=0)
    folds = np.array_split(np.random.default_rng(1).permutation(200), 4)
    scores = []
    for number, held_out in enumerate(folds):
        torch.manual_seed(number)
        train_index = np.concatenate([fold for fold in folds if fold is not held_out])
        prepare = make_prepare(take(data, train_index))
        rows = prepare({name: torch.from_numpy(column) for name, column in data.items()})
        model = Regressor()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
        delta = targets[train_index].std().item()
        for _ in range(15):
            predicted_loss = lambda p, t: F.huber_loss(p, t, delta=delta)
            loss = objective(model, take(rows, train_index), targets[train_index], predicted_loss)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            error = (model(take(rows, held_out)) - targets[held_out]).abs().mean()
        scores.append(float(error))
    print("MAE by fold", [round(score, 2) for score in scores])


if __name__ == "__main__":
    main()
