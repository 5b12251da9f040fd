"""Five mistakes that people make with torch.compile. `dynx run examples/mistakes.py` names them, and only them."""

import torch
from torch import nn


class Counter(nn.Module):
    """Counts its own steps: torch compiles the number into the graph, so every step is another graph."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.step = 0

    def forward(self, x):
        self.step += 1
        return self.linear(x) / self.step


class Chatty(nn.Module):
    """Prints while it computes: the graph ends at the print."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        x = self.linear(x)
        print("activation mean is fine")
        return torch.relu(x)


def scores(tokens, table):
    """Sequences of changing length: nobody marked the second dim as dynamic."""
    return table[tokens].softmax(-1)


def clip(x):
    """Python has to know the sum to take the branch."""
    if x.sum().item() > 0:
        return x.clamp(max=1)
    return x


def total(history, x):
    """A list that grows: its length is part of what was compiled."""
    for each in history:
        x = x + each
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
