"""Trains a tiny character model with a curriculum: blocks are added and windows grow while the loss goes down."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Stage:
    epochs: int
    depth: int
    window: int


CURRICULUM = [Stage(1, 1, 8), Stage(1, 2, 8), Stage(1, 2, 16), Stage(1, 3, 16), Stage(1, 3, 24)]


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mix = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.mix(self.norm(x)).chunk(3, dim=-1)
        return x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True))


class CharModel(nn.Module):
    def __init__(self, vocab=16, width=16, max_depth=4):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(max_depth))
        self.head = nn.Linear(width, vocab)
        self.active = 1

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks[: self.active]:
            x = block(x)
        return self.head(x)


def windows(text, size, batch_size, generator):
    for _ in range(4):
        starts = torch.randint(len(text) - size - 1, (batch_size,), generator=generator)
        chunk = torch.stack([text[s : s + size + 1] for s in starts.tolist()])
        yield chunk[:, :-1], chunk[:, 1:]


def main():
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    text = (torch.arange(400) * 5 + torch.arange(400) // 7) % 16
    model = CharModel()
    compiled = torch.compile(model, backend="eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for number, stage in enumerate(CURRICULUM):
        model.active = stage.depth
        for _ in range(stage.epochs):
            for inputs, targets in windows(text, stage.window, 8, generator):
                logits = compiled(inputs)
                loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        print(f"stage {number} depth {stage.depth} window {stage.window} loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
