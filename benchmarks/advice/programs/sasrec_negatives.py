"""Sequential recommendation (SASRec-like) with sampled softmax, items deduplicated over the batch, and item-item similarity."""

import torch
import torch.nn.functional as F
from torch import nn

ITEMS, DIM, MAX_LEN = 60, 16, 8


class SequenceEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.item = nn.Embedding(ITEMS, DIM, padding_idx=0, max_norm=2.0)
        self.position = nn.Embedding(MAX_LEN, DIM)
        self.attention = nn.MultiheadAttention(DIM, 2, batch_first=True)
        self.norm = nn.LayerNorm(DIM)

    def forward(self, history):
        x = self.item(history) + self.position.weight
        mask = torch.ones(MAX_LEN, MAX_LEN, dtype=torch.bool).triu(1)
        attended, _ = self.attention(x, x, x, attn_mask=mask, need_weights=False)
        return self.norm(x + attended)[:, -1]


class Recommender(nn.Module):
    def __init__(self, temperature=0.2):
        super().__init__()
        self.encoder = SequenceEncoder()
        self.temperature = temperature

    def sampled_loss(self, history, clicked, negatives):
        users = self.encoder(history)
        candidates, target = torch.unique(torch.cat([clicked, negatives]), return_inverse=True)
        scores = users @ self.encoder.item(candidates).T / self.temperature
        return F.cross_entropy(scores, target[: len(clicked)])

    def similarity(self, left, right):
        left, right = F.normalize(left, dim=-1), F.normalize(right, dim=-1)
        return left @ right.T


def sessions(n):
    start = torch.randint(1, ITEMS - MAX_LEN - 1, (n, 1))
    steps = torch.arange(MAX_LEN + 1)
    full = start + steps
    history = full[:, :-1].clone()
    history[torch.rand(n) < 0.3, :3] = 0
    return history, full[:, -1]


def train(model, epochs=3, batch=16, negatives=12):
    loss_fn = torch.compile(model.sampled_loss, backend="eager")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(epochs):
        total = 0.0
        for _ in range(4):
            history, clicked = sessions(batch)
            loss = loss_fn(history, clicked, torch.randint(1, ITEMS, (negatives,)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch + 1} loss {total / 4:.3f}")


@torch.no_grad()
def report(model):
    similarity = torch.compile(model.similarity, backend="eager")
    items = model.encoder.item.weight.detach()
    head, tail = items[1:21], items[21:41]
    across = similarity(head, tail)
    within = similarity(head, head)
    neighbours = (within - 2 * torch.eye(len(head))).argmax(dim=1)
    print(f"across {across.mean().item():.3f} within {within.mean().item():.3f} neighbours {neighbours[:5].tolist()}")


if __name__ == "__main__":
    torch.manual_seed(0)
    recommender = Recommender()
    train(recommender)
    report(recommender)
