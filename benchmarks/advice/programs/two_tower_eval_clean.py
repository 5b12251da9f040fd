"""Trains a two-tower retriever with in-batch negatives and checks its recall after each epoch; the learning rate, the
temperature and the padding are all kept in tensors or fixed sizes, so that the compiled code is used again."""
import torch
import torch.nn.functional as F
from torch import nn

LENGTH = 12
BATCH = 16


class Tower(nn.Module):
    def __init__(self, vocabulary, dim=24):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, dim, padding_idx=0)
        self.drop = nn.Dropout(0.2)
        self.project = nn.Sequential(nn.Linear(dim, 48), nn.GELU(), nn.Linear(48, dim))

    def forward(self, ids):
        mask = (ids != 0).unsqueeze(-1)
        pooled = (self.embed(ids) * mask).sum(1) / mask.sum(1).clamp(min=1)
        return F.normalize(self.project(self.drop(pooled)), dim=-1)


class Retriever(nn.Module):
    def __init__(self, vocabulary=60):
        super().__init__()
        self.query = Tower(vocabulary)
        self.document = Tower(vocabulary)
        self.log_temperature = nn.Parameter(torch.tensor(-1.5))

    def forward(self, queries, documents):
        scores = self.query(queries) @ self.document(documents).T
        return scores / self.log_temperature.exp()


def pad(rows):
    """Every batch has the same width, so no size changes from batch to batch."""
    return torch.stack([F.pad(row, (0, LENGTH - len(row))) for row in rows])


def batches(corpus, generator):
    order = torch.randperm(len(corpus), generator=generator).tolist()
    for start in range(0, len(order) - BATCH + 1, BATCH):
        chosen = [corpus[i] for i in order[start : start + BATCH]]
        yield pad([row[: len(row) // 2 + 1] for row in chosen]), pad([row[len(row) // 3 :] for row in chosen])


def main():
    torch.manual_seed(11)
    generator = torch.Generator().manual_seed(5)
    corpus = []
    for _ in range(70):
        topic = int(torch.randint(1, 50, (1,), generator=generator))
        length = int(torch.randint(6, LENGTH, (1,), generator=generator))
        corpus.append(topic + torch.randint(0, 10, (length,), generator=generator))
    model = Retriever()
    scores_of = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.7)
    goal = torch.arange(BATCH)
    for epoch in range(4):
        model.train()
        total = torch.zeros(())
        for queries, documents in batches(corpus, generator):
            loss = F.cross_entropy(scores_of(queries, documents), goal)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        schedule.step()
        model.eval()
        hits = [(scores_of(*pair).argmax(-1) == goal).float().mean() for pair in batches(corpus, generator)]
        print(f"epoch {epoch} loss {total.item():.2f} recall {torch.stack(hits).mean().item():.2f}")


main()
