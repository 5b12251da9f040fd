"""Tabular click model whose columns are encoded by type with functools.singledispatchmethod, one dataclass per column kind."""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatchmethod

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Numeric:
    name: str
    values: torch.Tensor


@dataclass
class Categorical:
    name: str
    codes: torch.Tensor


@dataclass
class Cyclic:
    name: str
    phase: torch.Tensor
    period: float = 24.0


class ColumnEncoder(nn.Module):
    def __init__(self, cardinalities: dict[str, int], dim: int):
        super().__init__()
        self.tables = nn.ModuleDict({name: nn.Embedding(n, dim) for name, n in cardinalities.items()})
        self.scale = nn.Linear(1, dim)
        self.wave = nn.Linear(2, dim)

    @singledispatchmethod
    def encode(self, column):
        raise TypeError(f"no encoder for {type(column).__name__}")

    @encode.register
    def _(self, column: Numeric):
        return self.scale(torch.log1p(column.values).unsqueeze(-1))

    @encode.register
    def _(self, column: Categorical):
        return self.tables[column.name](column.codes)

    @encode.register
    def _(self, column: Cyclic):
        angle = column.phase * (2 * torch.pi / column.period)
        return self.wave(torch.stack([angle.sin(), angle.cos()], dim=-1))


class ClickModel(nn.Module):
    def __init__(self, cardinalities: dict[str, int], dim: int = 8):
        super().__init__()
        self.columns = ColumnEncoder(cardinalities, dim)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, 1)

    def forward(self, row):
        hidden = torch.zeros(())
        for column in row:
            hidden = hidden + self.columns.encode(column)
        return self.head(self.norm(hidden).relu()).squeeze(-1)


def batches(count: int, size: int):
    generator = torch.Generator().manual_seed(7)
    for _ in range(count):
        price = torch.rand(size, generator=generator) * 50
        country = torch.randint(0, 12, (size,), generator=generator)
        hour = torch.randint(0, 24, (size,), generator=generator).float()
        clicked = ((price < 20) & (hour > 12)).float()
        yield [Numeric("price", price), Categorical("country", country), Cyclic("hour", hour)], clicked


def main():
    torch.manual_seed(0)
    model = ClickModel({"country": 12})
    forward = torch.compile(model, backend="eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-2)
    for step, (row, clicked) in enumerate(batches(24, 64)):
        loss = F.binary_cross_entropy_with_logits(forward(row), clicked)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 8 == 7:
            print(f"step {step + 1:2d} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
