"""A grid over learning rate, activation and depth; each trial builds a model and compiles its training step."""

import itertools

import torch
import torch.nn.functional as F
from torch import nn

GRID = {"depth": [1, 2, 3], "activation": ["relu", "gelu", "tanh"], "lr": [0.3, 0.1]}


class MLP(nn.Module):
    def __init__(self, depth, activation):
        super().__init__()
        self.inputs = nn.Linear(8, 16)
        self.hidden = nn.ModuleList(nn.Linear(16, 16) for _ in range(depth))
        self.outputs = nn.Linear(16, 1)
        self.activation = activation

    def forward(self, x):
        act = getattr(torch, self.activation) if self.activation != "gelu" else F.gelu
        x = act(self.inputs(x))
        for layer in self.hidden:
            x = act(layer(x))
        return self.outputs(x)


def make_train_step(model, lr):
    parameters = list(model.parameters())

    @torch.compile(backend="eager")
    def train_step(x, y):
        loss = F.mse_loss(model(x).squeeze(-1), y)
        loss.backward()
        with torch.no_grad():
            for p in parameters:
                p -= lr * p.grad
        for p in parameters:
            p.grad = None
        return loss.detach()

    return train_step


def trials():
    for values in itertools.product(*GRID.values()):
        yield dict(zip(GRID, values))


def run(trial, x, y, steps=4):
    torch.manual_seed(0)
    model = MLP(trial["depth"], trial["activation"])
    step = make_train_step(model, trial["lr"])
    for _ in range(steps):
        loss = step(x, y)
    return loss.item()


def main():
    g = torch.Generator().manual_seed(1)
    x = torch.randn(64, 8, generator=g)
    y = x[:, 0] * x[:, 1] + 0.1 * torch.randn(64, generator=g)
    results = []
    for trial in trials():
        results.append((run(trial, x, y), trial))
        print(trial, f"{results[-1][0]:.4f}")
    best = min(results, key=lambda pair: pair[0])
    print("best", best[1])


if __name__ == "__main__":
    main()
