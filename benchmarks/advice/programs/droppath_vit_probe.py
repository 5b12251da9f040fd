"""Trains a small vision transformer with stochastic depth."""
import random

import torch
import torch.nn.functional as F
from torch import nn


class DropPath(nn.Module):
    def __init__(self, rate):
        super().__init__()
        self.rate = rate

    def forward(self, x, branch):
        if self.training and random.random() < self.rate:
            return x
        return x + branch


class Block(nn.Module):
    def __init__(self, dim, heads, rate):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.drop = DropPath(rate)

    def attend(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-1, -2) / (d // self.heads) ** 0.5).softmax(-1)
        return self.proj((weights @ v).transpose(1, 2).reshape(b, n, d))

    def forward(self, x):
        x = self.drop(x, self.attend(self.norm1(x)))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    def __init__(self, dim=32, depth=3):
        super().__init__()
        self.patch = nn.Conv2d(3, dim, 8, 8)
        self.place = nn.Parameter(torch.randn(1, 16, dim) * 0.02)
        self.blocks = nn.ModuleList(Block(dim, 4, 0.3 * i / depth) for i in range(depth))
        self.head = nn.Linear(dim, 4)
        self.label_smoothing = 0.1

    def forward(self, images, labels=None):
        x = self.patch(images).flatten(2).transpose(1, 2) + self.place
        for block in self.blocks:
            x = block(x)
        logits = self.head(x.mean(1))
        if labels is None:
            return logits
        return F.cross_entropy(logits, labels, label_smoothing=self.label_smoothing)


random.seed(0)
torch.manual_seed(0)
model = ViT()
optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
compiled = torch.compile(model, backend="eager")
templates = torch.randn(4, 3, 32, 32)
for epoch in range(3):
    model.train()
    for _ in range(4):
        labels = torch.randint(4, (8,))
        loss = compiled(templates[labels] + 0.5 * torch.randn(8, 3, 32, 32), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    model.eval()
    labels = torch.arange(4).repeat(2)
    right = (compiled(templates[labels]).argmax(-1) == labels).float().mean()
    print(f"epoch {epoch} loss {loss.item():.2f} accuracy {right.item():.2f}")
