"""Next-item recommendation from click sessions: an item tower, pooled sessions and sampled softmax."""

import random

import torch
import torch.nn.functional as F
from torch import nn

ITEMS = 200


class SessionEncoder(nn.Module):
    """Encodes sessions of different lengths, which arrive as one flat tensor and the length of each session."""

    def __init__(self, items, dim):
        super().__init__()
        self.items = nn.Embedding(items, dim)
        self.attend = nn.Linear(dim, 1)
        self.project = nn.Linear(2 * dim, dim)

    def forward(self, clicks, lengths):
        vectors = self.items(clicks)
        weights = self.attend(torch.tanh(vectors)).squeeze(-1)
        sessions = []
        for part, weight in zip(torch.split(vectors, lengths.tolist()), torch.split(weights, lengths.tolist())):
            pooled = (weight.softmax(0).unsqueeze(-1) * part).sum(0)
            sessions.append(torch.cat([pooled, part[-1]]))
        return self.project(torch.stack(sessions))


class SampledSoftmax(nn.Module):
    def __init__(self, items, negatives, seed):
        super().__init__()
        self.items, self.negatives = items, negatives
        self.rng = random.Random(seed)

    def forward(self, session, table, target):
        sampled = torch.tensor(self.rng.sample(range(self.items), self.negatives))
        positive = (session * table(target)).sum(-1, keepdim=True)
        negative = session @ table(sampled).T
        logits = torch.cat([positive, negative], dim=1)
        return F.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.long))


def sessions(count, seed):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        length = int(torch.randint(2, 7, (), generator=generator))
        start = int(torch.randint(0, ITEMS - 10, (), generator=generator))
        yield [start + step for step in range(length)], start + length


def batches(examples, size):
    for first in range(0, len(examples), size):
        rows = examples[first : first + size]
        clicks = torch.tensor([item for history, _ in rows for item in history])
        lengths = torch.tensor([len(history) for history, _ in rows])
        yield clicks, lengths, torch.tensor([target for _, target in rows])


@torch.compile(backend="eager", dynamic=False)
def recommend(encoded, table, k):
    scores = F.normalize(encoded, dim=-1) @ F.normalize(table, dim=-1).T
    return scores.topk(k, dim=-1).indices


def main():
    torch.manual_seed(0)
    encoder = SessionEncoder(ITEMS, 16)
    criterion = SampledSoftmax(ITEMS, 20, seed=0)
    encode = torch.compile(encoder, backend="eager")
    loss_of = torch.compile(criterion, backend="eager")
    optimizer = torch.optim.Adam(encoder.parameters(), lr=0.01)
    examples = list(sessions(36, seed=1))
    for epoch in range(2):
        total = 0.0
        for clicks, lengths, target in batches(examples, 12):
            loss = loss_of(encode(clicks, lengths), encoder.items, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: {total / 3:.3f}")
    with torch.no_grad():
        encoded = encoder(*next(batches(examples, 36))[:2])
        for users in (3, 8, 5, 13):
            print(users, recommend(encoded[:users], encoder.items.weight, 5)[-1].tolist())


if __name__ == "__main__":
    main()
