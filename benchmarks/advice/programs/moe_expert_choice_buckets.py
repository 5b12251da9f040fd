"""A mixture of experts with a shared expert, top-1 routing by loops over experts and load statistics."""
from collections import Counter

import torch
from torch import nn


class Expert(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.up = nn.Linear(dim, hidden)
        self.down = nn.Linear(hidden, dim)

    def forward(self, x):
        return self.down(torch.nn.functional.gelu(self.up(x)))


class Router(nn.Module):
    def __init__(self, dim, experts):
        super().__init__()
        self.weight = nn.Parameter(0.1 * torch.randn(experts, dim))
        self.noise = 1.0

    def forward(self, x):
        logits = x @ self.weight.t()
        if self.training:
            logits = logits + self.noise * 0.01 * torch.randn_like(logits)
        return logits.softmax(-1)


class SparseBlock(nn.Module):
    def __init__(self, dim=16, hidden=32, experts=4):
        super().__init__()
        self.router = Router(dim, experts)
        self.experts = nn.ModuleList(Expert(dim, hidden) for _ in range(experts))
        self.shared = Expert(dim, hidden)
        self.norm = nn.LayerNorm(dim)
        self.load = Counter()

    def forward(self, tokens):
        x = self.norm(tokens)
        probs = self.router(x)
        gate, choice = probs.max(-1)
        out = self.shared(x)
        for number, expert in enumerate(self.experts):
            rows = torch.where(choice == number)[0]
            if rows.numel() == 0:
                continue
            out = out.index_add(0, rows, gate[rows, None] * expert(x[rows]))
        return tokens + out, probs

    def record(self, probs):
        self.load.update(probs.argmax(-1).tolist())


def balance(probs):
    mean = probs.mean(0)
    return (mean * mean).sum() * probs.shape[-1]


def main():
    torch.manual_seed(8)
    block = SparseBlock()
    head = nn.Linear(16, 3)
    compiled = torch.compile(block, backend="eager")
    optimizer = torch.optim.AdamW([*block.parameters(), *head.parameters()], lr=1e-3)
    for epoch in range(5):
        block.router.noise = 1.0 / (1 + epoch)
        tokens = torch.randn(48, 16)
        labels = torch.randint(0, 3, (48,))
        hidden, probs = compiled(tokens)
        loss = nn.functional.cross_entropy(head(hidden), labels) + 0.01 * balance(probs)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        block.record(probs)
        print(f"epoch {epoch} loss {loss.item():.3f}")
    block.eval()
    with torch.no_grad():
        hidden, probs = compiled(torch.randn(48, 16))
    print(f"eval {hidden.pow(2).mean().item():.3f} experts used {len(block.load)}")


if __name__ == "__main__":
    main()
