"""A module that counts its calls to warm up a coefficient."""

import torch
from torch import nn


class Warmup(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(8, 8)
        self.step = 0

    def forward(self, x):
        self.step += 1
        return self.proj(x) * min(1.0, self.step / 4)


def main():
    torch.manual_seed(0)
    model = torch.compile(Warmup(), backend="eager")
    x = torch.randn(4, 8)
    with torch.no_grad():
        for _ in range(5):
            print(f"{model(x).sum().item():.4f}")


if __name__ == "__main__":
    main()
