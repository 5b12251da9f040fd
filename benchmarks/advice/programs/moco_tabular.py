"""Momentum contrast on tabular rows: key encoder as EMA of the query encoder and a ring-buffer queue of negatives."""

import copy

import torch
import torch.nn.functional as F
from torch import nn


class RowEncoder(nn.Module):
    def __init__(self, numeric=6, cardinalities=(5, 9), dim=16):
        super().__init__()
        self.embeddings = nn.ModuleList(nn.Embedding(size, 4) for size in cardinalities)
        self.net = nn.Sequential(nn.Linear(numeric + 4 * len(cardinalities), 32), nn.ReLU(), nn.Linear(32, dim))

    def forward(self, numeric, categories):
        columns = [embedding(categories[:, index]) for index, embedding in enumerate(self.embeddings)]
        return F.normalize(self.net(torch.cat([numeric, *columns], dim=1)), dim=1)


class MoCo(nn.Module):
    def __init__(self, dim=16, queue_size=80, temperature=0.2):
        super().__init__()
        self.query = RowEncoder(dim=dim)
        self.key = copy.deepcopy(self.query).requires_grad_(False)
        self.temperature = temperature
        self.register_buffer("queue", F.normalize(torch.randn(queue_size, dim), dim=1))
        self.register_buffer("pointer", torch.zeros((), dtype=torch.long))

    @torch.no_grad()
    def enqueue(self, keys):
        slots = (self.pointer + torch.arange(keys.shape[0])) % self.queue.shape[0]
        self.queue[slots] = keys
        self.pointer.copy_((self.pointer + keys.shape[0]) % self.queue.shape[0])

    @torch.no_grad()
    def update_key(self, momentum):
        torch._foreach_lerp_(list(self.key.parameters()), list(self.query.parameters()), 1.0 - momentum)

    def forward(self, view_a, view_b, categories):
        q = self.query(view_a, categories)
        with torch.no_grad():
            k = self.key(view_b, categories)
        positive = (q * k).sum(dim=1, keepdim=True)
        negative = q @ self.queue.T.clone()
        logits = torch.cat([positive, negative], dim=1) / self.temperature
        self.enqueue(k)
        return F.cross_entropy(logits, torch.zeros(len(q), dtype=torch.long))


def corrupt(rows, rate):
    shuffled = rows[torch.randperm(len(rows))]
    return torch.where(torch.rand_like(rows) < rate, shuffled, rows)


def main():
    torch.manual_seed(0)
    model = MoCo()
    loss_fn = torch.compile(model, backend="aot_eager", fullgraph=True)
    optimizer = torch.optim.AdamW(model.query.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=20)
    numeric = torch.randn(150, 6)
    categories = torch.stack([torch.randint(5, (150,)), torch.randint(9, (150,))], dim=1)
    for epoch in range(4):
        total = 0.0
        for rows in torch.randperm(150)[:128].split(32):
            loss = loss_fn(corrupt(numeric[rows], 0.2), corrupt(numeric[rows], 0.2), categories[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            model.update_key(momentum=0.9 + 0.02 * epoch)
            total += loss.item()
        print(f"epoch {epoch + 1} loss {total / 4:.4f} pointer {model.pointer.item()}")


if __name__ == "__main__":
    main()
