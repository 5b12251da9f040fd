"""Contrastive training configured with enums, frozen dataclasses, properties, partials and a context manager."""

import contextlib
import enum
import functools
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import nn


class Pooling(enum.Enum):
    MEAN = "mean"
    MAX = "max"
    FIRST = "first"


class Outputs(NamedTuple):
    left: torch.Tensor
    right: torch.Tensor
    logits: torch.Tensor


class Similarity(Protocol):
    def __call__(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor: ...


def cosine(left, right, *, scale):
    return scale * F.normalize(left, dim=-1) @ F.normalize(right, dim=-1).T


@dataclass(frozen=True)
class Config:
    vocab: int = 64
    dim: int = 16
    pooling: Pooling = Pooling.MEAN
    similarity: Similarity = field(default=functools.partial(cosine, scale=10.0))

    @property
    def hidden(self) -> int:
        return 2 * self.dim


@contextlib.contextmanager
def frozen(module):
    flags = [parameter.requires_grad for parameter in module.parameters()]
    module.requires_grad_(False)
    try:
        yield module
    finally:
        for parameter, flag in zip(module.parameters(), flags):
            parameter.requires_grad_(flag)


class DualEncoder(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(config.vocab, config.dim)
        self.project = nn.Sequential(nn.Linear(config.dim, config.hidden), nn.GELU(), nn.Linear(config.hidden, config.dim))

    def encode(self, tokens):
        hidden = self.project(self.embed(tokens))
        match self.config.pooling:
            case Pooling.MEAN:
                return hidden.mean(1)
            case Pooling.MAX:
                return hidden.amax(1)
            case Pooling.FIRST:
                return hidden[:, 0]

    def forward(self, left, right):
        left, right = self.encode(left), self.encode(right)
        return Outputs(left, right, self.config.similarity(left, right))


def main():
    torch.manual_seed(0)
    model = DualEncoder(Config(pooling=Pooling.MAX))
    forward = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    targets = torch.arange(16)
    with frozen(model.embed):
        for step in range(20):
            left = torch.randint(0, 64, (16, 8))
            right = torch.where(torch.rand(16, 8) < 0.25, torch.randint(0, 64, (16, 8)), left)
            outputs = forward(left, right)
            loss = F.cross_entropy(outputs.logits, targets)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            if step % 5 == 4:
                hits = (outputs.logits.argmax(1) == targets).sum().item()
                print(f"step {step + 1:2d} loss {loss.item():.4f} hits {hits}/16")


if __name__ == "__main__":
    main()
