"""Decodes tokens with a state in a dataclass and a strategy in an enum."""

import dataclasses
import enum

import torch
from torch import nn


class Strategy(enum.Enum):
    GREEDY = "greedy"
    SHARPENED = "sharpened"
    PENALISED = "penalised"


@dataclasses.dataclass(frozen=True)
class DecodeState:
    tokens: torch.Tensor
    hidden: torch.Tensor
    position: int = 0
    strategy: Strategy = Strategy.GREEDY

    def advance(self, tokens, hidden):
        return dataclasses.replace(self, tokens=tokens, hidden=hidden, position=self.position + 1)


class Decoder(nn.Module):
    def __init__(self, vocabulary=32, width=16, max_positions=64):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(max_positions, width)
        self.cell = nn.GRUCell(width, width)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, state):
        x = self.embed(state.tokens) + self.position.weight[state.position]
        hidden = self.cell(x, state.hidden)
        logits = self.head(hidden)
        if state.strategy is Strategy.SHARPENED:
            logits = logits / 0.5
        elif state.strategy is Strategy.PENALISED:
            logits = logits.scatter_add(1, state.tokens[:, None], logits.new_full((len(state.tokens), 1), -1.5))
        return logits, hidden


def decode(step, state, length):
    total = torch.zeros(())
    for _ in range(length):
        logits, hidden = step(state)
        score, tokens = logits.log_softmax(-1).max(-1)
        total = total + score.sum()
        state = state.advance(tokens, hidden)
    return state, total


def main():
    torch.manual_seed(1)
    model = Decoder().eval()
    step = torch.compile(model, backend="eager")
    with torch.no_grad():
        for strategy in Strategy:
            start = DecodeState(torch.tensor([1, 2, 3]), torch.zeros(3, 16), strategy=strategy)
            state, total = decode(step, start, length=4)
            print(f"{strategy.value}: {state.tokens.tolist()} at {state.position}, log-likelihood {total.item():.4f}")


if __name__ == "__main__":
    main()
