"""Serves a passage re-ranker: requests are grouped into length buckets and scored by a small pool of worker threads."""

import queue
import threading
from dataclasses import dataclass, field

import torch
import torch._dynamo
from torch import nn

torch._dynamo.config.recompile_limit = 32
BUCKETS = (8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64)


class ReRanker(nn.Module):
    def __init__(self, vocab=400, dim=32, heads=4):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim, padding_idx=0)
        self.block = nn.TransformerEncoderLayer(dim, heads, 2 * dim, dropout=0.0, batch_first=True, norm_first=True)
        self.score = nn.Linear(dim, 1)

    def forward(self, tokens):
        mask = tokens.ne(0)
        hidden = self.block(self.embed(tokens), src_key_padding_mask=~mask)
        pooled = (hidden * mask.unsqueeze(-1)).sum(dim=1) / mask.sum(dim=1, keepdim=True)
        return self.score(pooled).squeeze(-1)


@dataclass
class Request:
    ident: int
    passages: list
    done: threading.Event = field(default_factory=threading.Event)
    scores: torch.Tensor | None = None


def pad_to_bucket(passages):
    longest = max(map(len, passages))
    width = next(bucket for bucket in BUCKETS if bucket >= longest)
    tokens = torch.zeros(len(passages), width, dtype=torch.long)
    for row, passage in enumerate(passages):
        tokens[row, : len(passage)] = torch.tensor(passage)
    return tokens


class RankService:
    def __init__(self, model, workers=1):
        self.model = torch.compile(model.eval(), backend="eager", dynamic=False)
        self.inbox = queue.Queue()
        self.threads = [threading.Thread(target=self._work, daemon=True) for _ in range(workers)]

    def start(self):
        for thread in self.threads:
            thread.start()
        return self

    def _work(self):
        with torch.inference_mode():
            while (request := self.inbox.get()) is not None:
                request.scores = self.model(pad_to_bucket(request.passages))
                request.done.set()

    def submit(self, request):
        self.inbox.put(request)
        return request

    def stop(self):
        for _ in self.threads:
            self.inbox.put(None)
        for thread in self.threads:
            thread.join()


def traffic(generator, requests=22, passages=4):
    for ident in range(requests):
        longest = BUCKETS[ident % len(BUCKETS)]
        lengths = [longest] + torch.randint(4, longest + 1, (passages - 1,), generator=generator).tolist()
        yield Request(ident, [torch.randint(1, 400, (length,), generator=generator).tolist() for length in lengths])


def main():
    torch.manual_seed(0)
    service = RankService(ReRanker()).start()
    pending = [service.submit(request) for request in traffic(torch.Generator().manual_seed(1))]
    for request in pending:
        request.done.wait()
        if request.ident % 5 == 0:
            print(f"request {request.ident:2d} best passage {request.scores.argmax().item()} ({request.scores.max().item():+.3f})")
    service.stop()


if __name__ == "__main__":
    main()
