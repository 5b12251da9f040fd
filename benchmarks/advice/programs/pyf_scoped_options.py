"""Inference service whose per-request options live in a ContextVar, set by a context manager around each request."""

import contextlib
import contextvars
import logging
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import nn

logger = logging.getLogger("ranker")


@dataclass(frozen=True)
class Options:
    temperature: float = 1.0
    mask_padding: bool = True


current_options = contextvars.ContextVar("current_options", default=Options())


@contextlib.contextmanager
def options(**changes):
    token = current_options.set(replace(current_options.get(), **changes))
    try:
        yield
    finally:
        current_options.reset(token)


class Ranker(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim, padding_idx=0)
        self.query = nn.Linear(dim, dim)
        self.key = nn.Linear(dim, dim)

    def forward(self, tokens):
        hidden = self.embed(tokens)
        scores = self.query(hidden) @ self.key(hidden).transpose(1, 2)
        opts = current_options.get()
        if opts.mask_padding:
            scores = scores.masked_fill((tokens == 0).unsqueeze(1), -1e4)
        return F.softmax(scores / opts.temperature, dim=-1).amax(dim=-1).mean(dim=-1)


class Service:
    def __init__(self, model):
        self.model = model.eval()
        self.rank = torch.compile(model, backend="eager")
        self.served = 0

    @torch.inference_mode()
    def handle(self, tokens, **changes):
        with options(**changes):
            self.served += 1
            logger.info("request %d with %s", self.served, current_options.get())
            return self.rank(tokens)


def main():
    logging.basicConfig(level=logging.WARNING)
    torch.manual_seed(0)
    service = Service(Ranker(vocab=50, dim=12))
    requests = [dict(), dict(temperature=0.7), dict(temperature=1.3), dict()]
    for number, changes in enumerate(requests):
        tokens = torch.randint(0, 50, (4, 9))
        tokens[:, 7:] = 0
        ranks = service.handle(tokens, **changes)
        print(f"request {number}: {[round(value, 4) for value in ranks.tolist()]}")


if __name__ == "__main__":
    main()
