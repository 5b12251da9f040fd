"""Trains a character model on a periodic text while the sequence length grows by a curriculum."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TEXT = "the quick brown fox jumps over the lazy dog. " * 30
VOCAB = sorted(set(TEXT))
STAGES = [(8, 2), (16, 2), (24, 1), (32, 1)]


class CharModel(nn.Module):
    def __init__(self, vocab_size, dim=24, max_length=64):
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, dim)
        self.positions = nn.Parameter(torch.zeros(max_length, dim))
        self.norm = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.head = nn.Linear(dim, vocab_size, bias=False)

    def attend(self, h):
        scores = h @ h.transpose(1, 2) / h.shape[-1] ** 0.5
        mask = torch.ones(h.shape[1], h.shape[1], dtype=torch.bool, device=h.device).tril()
        return scores.masked_fill(~mask, float("-inf")).softmax(dim=-1) @ h

    def forward(self, ids):
        h = self.tokens(ids) + self.positions[: ids.shape[1]]
        h = h + self.attend(self.norm(h))
        h = h + self.mlp(self.norm(h))
        return self.head(h)


def windows(length):
    ids = torch.tensor([VOCAB.index(c) for c in TEXT])
    chunks = ids.unfold(0, length + 1, length)[:38]
    return DataLoader(TensorDataset(chunks), batch_size=16)


def main():
    torch.manual_seed(0)
    model = CharModel(len(VOCAB))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    @torch.compile(backend="eager")
    def loss_fn(batch):
        logits = model(batch[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())

    for length, epochs in STAGES:
        for epoch in range(epochs):
            losses = []
            for (batch,) in windows(length):
                loss = loss_fn(batch)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            print(f"length {length:2d} epoch {epoch} loss {sum(losses) / len(losses):.4f}")


if __name__ == "__main__":
    main()
