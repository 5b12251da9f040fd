"""Pipeline of user-registered stages; each stage takes only the parts of the batch that its signature names."""

import collections
import functools
import inspect

import torch
import torch.nn.functional as F
from torch import nn

STAGES = {}
CALLS = collections.Counter()


def stage(order):
    def register(function):
        @functools.wraps(function)
        def call(module, batch):
            wanted = inspect.signature(function).parameters
            CALLS[function.__name__] += 1
            return function(module, **{name: batch[name] for name in wanted if name in batch})

        STAGES[order] = call
        return call

    return register


@stage(0)
def embed(module, tokens):
    return {"hidden": module.embed(tokens)}


@stage(1)
def pool(module, hidden, mask):
    weights = mask.unsqueeze(-1).float()
    return {"pooled": (hidden * weights).sum(1) / weights.sum(1).clamp(min=1)}


@stage(2)
def classify(module, pooled):
    return {"logits": module.head(torch.tanh(pooled))}


class Pipeline(nn.Module):
    def __init__(self, vocab, dim, classes):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, tokens, mask):
        batch = {"tokens": tokens, "mask": mask}
        for order in sorted(STAGES):
            batch.update(STAGES[order](self, batch))
        return batch["logits"]


def main():
    torch.manual_seed(0)
    model = Pipeline(vocab=40, dim=16, classes=3)
    forward = torch.compile(model, backend="eager")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for step in range(20):
        tokens = torch.randint(0, 40, (16, 10))
        mask = torch.arange(10) < torch.randint(3, 11, (16, 1))
        labels = (tokens[:, 0] % 3)
        loss = F.cross_entropy(forward(tokens, mask), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 4:
            print(f"step {step + 1:2d} loss {loss.item():.4f}")
    print(dict(CALLS))


if __name__ == "__main__":
    main()
