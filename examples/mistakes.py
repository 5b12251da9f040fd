"""Five common mistakes with torch.compile. `dynx run examples/mistakes.py` reports these five and nothing else."""

import torch
from torch import nn


class Counter(nn.Module):
    """Counts its steps in a Python int: torch guards on its value, so every step recompiles."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.step = 0

    def forward(self, x):
        self.step += 1
        return self.linear(x) / self.step


class Chatty(nn.Module):
    """Prints in forward: a graph break."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        x = self.linear(x)
        print("activation mean is fine")
        return torch.relu(x)


def scores(tokens, table):
    """Index with sequences of several lengths: dimension 1 is not marked as dynamic."""
    return table[tokens].softmax(-1)


def clip(x):
    """Branch on the value of a tensor, which Python has to read: a graph break."""
    if x.sum().item() > 0:
        return x.clamp(max=1)
    return x


def total(history, x):
    """Add up a list that grows: torch guards on its length."""
    for tensor in history:
        x = x + tensor
    return x


def main():
    torch.manual_seed(0)
    with torch.no_grad():
        counter = torch.compile(Counter(), backend="eager")
        for _ in range(12):
            counter(torch.randn(4, 8))

        chatty = torch.compile(Chatty(), backend="eager")
        chatty(torch.randn(4, 8))

        score = torch.compile(scores, backend="eager")
        table = torch.randn(100, 8)
        for length in (5, 6, 7):
            score(torch.randint(0, 100, (2, length)), table)

        torch.compile(clip, backend="eager")(torch.ones(8))

        add = torch.compile(total, backend="eager")
        history = []
        for _ in range(4):
            history.append(torch.ones(8))
            add(history, torch.zeros(8))


main()
