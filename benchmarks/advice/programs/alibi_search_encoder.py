"""A bi-encoder with ALiBi attention for a search index: documents go in by length, so that little is padded."""

import math
from itertools import groupby

import torch
import torch.nn.functional as F
from torch import nn


class AlibiBias(nn.Module):
    def __init__(self, heads):
        super().__init__()
        self.register_buffer("slopes", 2.0 ** (-8.0 * torch.arange(1, heads + 1) / heads))
        self.tables = {}

    def forward(self, length, device):
        if length not in self.tables:
            place = torch.arange(length, device=device)
            distance = (place[:, None] - place[None, :]).abs()
            self.tables[length] = -self.slopes[:, None, None] * distance
        return self.tables[length]


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x, bias):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + bias).softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class SearchEncoder(nn.Module):
    def __init__(self, vocab=200, dim=32, heads=4, layers=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.alibi = AlibiBias(heads)
        self.layers = nn.ModuleList(Layer(dim, heads) for _ in range(layers))

    def forward(self, ids):
        x = self.embed(ids)
        bias = self.alibi(ids.shape[1], ids.device)
        for layer in self.layers:
            x = layer(x, bias)
        return F.normalize(x.mean(1), dim=-1)


class Index:
    def __init__(self, encoder):
        self.encode = torch.compile(encoder.eval(), backend="eager")
        self.vectors, self.names = [], []

    @torch.no_grad()
    def add(self, documents):
        documents = sorted(documents.items(), key=lambda item: len(item[1]))
        for _, group in groupby(documents, key=lambda item: len(item[1])):
            names, ids = zip(*group)
            self.vectors.append(self.encode(torch.tensor(ids)))
            self.names += names

    @torch.no_grad()
    def search(self, query, count=3):
        scores = (torch.cat(self.vectors) @ self.encode(torch.tensor([query, query])).T)[:, 0]
        best = scores.topk(count)
        return [(self.names[i], round(score, 3)) for i, score in zip(best.indices.tolist(), best.values.tolist())]


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(4)
    documents = {}
    for number in range(24):
        length = 4 + 2 * (number // 2)
        documents[f"doc-{number:02d}"] = torch.randint(0, 200, (length,), generator=gen).tolist()
    index = Index(SearchEncoder())
    index.add(documents)
    print(len(index.names), "documents")
    for name in ("doc-03", "doc-10", "doc-21"):
        print(name, "->", index.search(documents[name]))


if __name__ == "__main__":
    main()
