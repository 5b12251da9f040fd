"""Trains a two-tower matching model with one compiled function for loss, backward, clipping and update."""

import torch
import torch.nn.functional as F
from torch import nn


class Tower(nn.Module):
    def __init__(self, in_dim, out_dim):
        super().__init__()
        self.fc1 = nn.Linear(in_dim, 32)
        self.fc2 = nn.Linear(32, out_dim)

    def forward(self, x):
        return F.normalize(self.fc2(F.relu(self.fc1(x))), dim=-1)


class TwoTower(nn.Module):
    def __init__(self, query_dim, item_dim, dim=16):
        super().__init__()
        self.query = Tower(query_dim, dim)
        self.item = Tower(item_dim, dim)
        self.log_scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, queries, items):
        return self.log_scale.exp() * self.query(queries) @ self.item(items).T


def contrastive_loss(scores):
    target = torch.arange(scores.shape[0], device=scores.device)
    return 0.5 * (F.cross_entropy(scores, target) + F.cross_entropy(scores.T, target))


class Trainer:
    def __init__(self, model, lr=0.1, max_norm=1.0):
        self.model = model
        self.params = list(model.parameters())
        self.lr = lr
        self.max_norm = max_norm
        self.step = torch.compile(self._step, backend="eager", fullgraph=True)

    def _gradients(self, loss):
        loss.backward()
        return [p.grad for p in self.params]

    def _apply(self, grads):
        with torch.no_grad():
            total_norm = torch.stack([g.norm() for g in grads]).norm()
            scale = self.lr * (self.max_norm / (total_norm + 1e-6)).clamp(max=1.0)
            for p, g in zip(self.params, grads):
                p.sub_(scale * g)
        return total_norm

    def _step(self, queries, items):
        for p in self.params:
            p.grad = None
        loss = contrastive_loss(self.model(queries, items))
        total_norm = self._apply(self._gradients(loss))
        return loss.detach(), total_norm


def main():
    torch.manual_seed(0)
    model = TwoTower(query_dim=10, item_dim=6)
    trainer = Trainer(model)
    items = torch.randn(24, 6)
    queries = torch.cat([items, items.flip(-1)[:, :4]], dim=-1)
    for epoch in range(5):
        loss, total_norm = trainer.step(queries, items)
        print(f"epoch {epoch} loss {loss.item():.4f} grad norm {total_norm.item():.4f}")


if __name__ == "__main__":
    main()
