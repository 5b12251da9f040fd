"""A request queue that a scheduler empties in batches of up to four, with latency statistics for each batch."""

import time
from collections import deque
from dataclasses import dataclass, field

import torch
from torch import nn

MAX_BATCH = 4
PROMPT_LEN = 10


@dataclass
class Request:
    request_id: int
    tokens: list[int]
    arrived: float = field(default_factory=time.monotonic)


@dataclass
class BatchStats:
    sizes: list[int] = field(default_factory=list)
    slow: int = 0


class Ranker(nn.Module):
    def __init__(self, vocab=64, dim=16):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.gru_in = nn.Linear(dim, dim)
        self.query = nn.Parameter(torch.randn(dim))
        self.score = nn.Linear(dim, 1)
        self.last_latency = 0.0

    def forward(self, input_ids):
        began = time.perf_counter()
        hidden = torch.tanh(self.gru_in(self.embed(input_ids)))
        weights = torch.softmax(hidden @ self.query, dim=-1)
        scores = self.score((weights.unsqueeze(-1) * hidden).sum(dim=1)).squeeze(-1)
        self.last_latency = time.perf_counter() - began
        return scores


class Scheduler:
    def __init__(self, model):
        self.model = model
        self.rank = torch.compile(model, backend="eager")
        self.queue = deque()
        self.stats = BatchStats()

    def add(self, request):
        self.queue.append(request)

    def next_batch(self):
        return [self.queue.popleft() for _ in range(min(MAX_BATCH, len(self.queue)))]

    @torch.no_grad()
    def step(self):
        batch = self.next_batch()
        self.stats.sizes.append(len(batch))
        input_ids = torch.tensor([request.tokens for request in batch])
        scores = self.rank(input_ids)
        self.stats.slow += self.model.last_latency > 30.0
        return {request.request_id: score for request, score in zip(batch, scores.tolist())}


def main():
    torch.manual_seed(0)
    scheduler = Scheduler(Ranker().eval())
    request_id = 0
    for arrivals in (4, 4, 2, 1, 3, 1, 4):
        for _ in range(arrivals):
            scheduler.add(Request(request_id, [(request_id * 5 + j) % 64 for j in range(PROMPT_LEN)]))
            request_id += 1
        for number, score in scheduler.step().items():
            print(f"{number}: {score:.4f}")
    print("batches", scheduler.stats.sizes, "slow", scheduler.stats.slow)


if __name__ == "__main__":
    main()
