"""`mistakes.py` with the advice followed: no recompile, no graph break, no recompile limit reached."""

import torch
from torch import nn


class Counter(nn.Module):
    """Counts its steps in a tensor buffer, updated in place: the value of a tensor is not guarded."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("step", torch.zeros(()))

    def forward(self, x):
        self.step += 1
        return self.linear(x) / self.step


class Quiet(nn.Module):
    """Leaves printing to the caller."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return torch.relu(self.linear(x))


def scores(tokens, table):
    """Index with sequences of several lengths: the caller marks dimension 1 as dynamic."""
    return table[tokens].softmax(-1)


def clip(x):
    """Compute both branches and select with torch.where."""
    return torch.where(x.sum() > 0, x.clamp(max=1), x)


def total(history, x):
    """Add up the rows of one tensor of fixed size; rows that are not filled yet are zero."""
    return x + history.sum(0)


def main():
    torch.manual_seed(0)
    with torch.no_grad():
        counter = torch.compile(Counter(), backend="eager")
        for _ in range(12):
            counter(torch.randn(4, 8))

        torch.compile(Quiet(), backend="eager")(torch.randn(4, 8))
        print("activation mean is fine")

        score = torch.compile(scores, backend="eager")
        table = torch.randn(100, 8)
        for length in (5, 6, 7):
            tokens = torch.randint(0, 100, (2, length))
            torch._dynamo.mark_dynamic(tokens, 1)
            score(tokens, table)

        torch.compile(clip, backend="eager")(torch.ones(8))

        add = torch.compile(total, backend="eager")
        history = torch.zeros(4, 8)
        for step in range(4):
            history[step] = torch.ones(8)
            add(history, torch.zeros(8))


main()
