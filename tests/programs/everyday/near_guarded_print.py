"""Debug prints and asserts which the compiler never sees."""
import os

import torch
from torch import nn

DEBUG = os.environ.get("MODEL_DEBUG", "0") == "1"


def trace(name, t):
    if torch.compiler.is_compiling():
        return
    print(f"{name}: shape={tuple(t.shape)} mean={t.float().mean().item():.3f}")


class Block(nn.Module):
    def __init__(self, dim, p=0.1):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.ff = nn.Linear(dim, dim)
        self.p = p

    def forward(self, x):
        assert x.dim() == 3, f"expected 3 dims, got {x.dim()}"
        if DEBUG:
            print("block input", x)
        h = self.ff(self.norm(x))
        trace("ff", h)
        if self.p > 0 and self.training:
            h = nn.functional.dropout(h, self.p)
        return x + h


class Stack(nn.Module):
    def __init__(self, dim=16, depth=3):
        super().__init__()
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))

    def forward(self, x):
        for i, b in enumerate(self.blocks):
            x = b(x)
            trace(f"block{i}", x)
        return x


def main():
    torch.manual_seed(0)
    model = Stack()
    model(torch.randn(1, 2, 16))
    fast = torch.compile(model, backend="aot_eager")
    total = 0.0
    for step in range(3):
        x = torch.randn(2, 5, 16)
        loss = fast(x).pow(2).mean()
        loss.backward()
        total += loss.item()
        if step % 2 == 0:
            print("step", step, "loss", round(loss.item(), 4))
    print("total", round(total, 3))


main()
