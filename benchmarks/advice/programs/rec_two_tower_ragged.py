"""Two-tower retrieval over ragged watch histories, trained with sampled softmax over the unique items of the batch."""

import torch
import torch.nn.functional as F
from torch import nn


class Tower(nn.Module):
    def __init__(self, items, dim):
        super().__init__()
        self.items = nn.Embedding(items, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, dim))

    def user(self, ids, lengths):
        rows = self.items(ids)
        pooled = [history.mean(0) for history in torch.split(rows, lengths.tolist())]
        return self.mlp(torch.stack(pooled))

    def forward(self, ids, lengths, positives):
        users = F.normalize(self.user(ids, lengths), dim=-1)
        candidates, target = positives.unique(return_inverse=True)
        logits = users @ F.normalize(self.items(candidates), dim=-1).T / 0.1
        return F.cross_entropy(logits, target)


def ragged_batches(count, users, items, seed):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        lengths = torch.randint(2, 9, (users,), generator=generator)
        taste = torch.randint(0, items // 10, (users,), generator=generator)
        owner = torch.repeat_interleave(taste, lengths)
        ids = owner * 10 + torch.randint(0, 10, owner.shape, generator=generator)
        positives = taste * 10 + torch.randint(0, 10, (users,), generator=generator)
        yield ids, lengths, positives


def main():
    torch.manual_seed(0)
    model = Tower(items=80, dim=16)
    step_loss = torch.compile(model, backend="eager", dynamic=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step, (ids, lengths, positives) in enumerate(ragged_batches(16, users=12, items=80, seed=5)):
        loss = step_loss(ids, lengths, positives)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 4 == 3:
            print(f"step {step + 1:2d} loss {loss.item():.4f} ids {ids.numel()}")


if __name__ == "__main__":
    main()
