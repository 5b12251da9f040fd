"""Random modules that view, change, keep and hand on tensors, as source that can be read, and random ways to call them."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

import torch

ARGUMENTS = ("a", "b", "c")
ROWS, COLUMNS = 4, 6

_HEAD = """\
class Program(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(-1, 1, 36).view(6, 6))
        self.bias = torch.nn.Parameter(torch.linspace(0, 1, 6))
        self.register_buffer("total", torch.zeros(6))

    def forward(self, a, b, c):
"""
_MADE = (
    "{x} * 2",
    "{x} + {y}",
    "{x} * {y}",
    "torch.where({x} > 0, {x}, {y})",
    "torch.sigmoid({x})",
    "{x}.sum()",
    "{x}.mean(0)",
    "torch.cat([{x}, {y}])",
    "{x} @ self.weight + self.bias",
    "{x} - self.total",
    "torch.nn.functional.dropout({x}, 0.5)",
    "torch.rand_like({x})",
    "{x}.to(torch.float64)",
    "{x}.clone()",
    "torch.zeros(3, device={x}.device)",
    "torch.full_like({x}, 0.5)",
)
_VIEWS = (
    "{x}[1:]",
    "{x}[..., ::2]",
    "{x}[0]",
    "{x}.t()",
    "{x}.reshape(-1)",
    "{x}.unsqueeze(0)",
    "{x}.expand(2, *{x}.shape)",
    "{x}.detach()",
    "{x}.view_as({x})",
    "{x}.contiguous()",
    "{x}.chunk(2)[1]",
    "self.weight",
    "self.weight[0]",
    "self.total",
    "self.total[1:]",
)
_CHANGES = (
    "{x}.add_(1)",
    "{x}.mul_({y})",
    "{x}.copy_({y})",
    "{x}[0] = 3",
    "self.total.add_({x}.detach().sum())",
    "self.total.mul_(0.5)",
)
_BREAKS = ("{x} * {x}.detach().sum().item()", "{x}.detach().sum().cpu().to({x}.device) * {x}")


@dataclass(frozen=True)
class Program:
    statements: tuple[str, ...]
    results: tuple[str, ...]
    nests: bool  # results are in a dict and a list

    @property
    def source(self) -> str:
        given = ", ".join(self.results)
        last = f'return {{"all": [{given}], "more": ({self.results[0]}, 3, None)}}' if self.nests else f"return ({given},)"
        return _HEAD + "".join(f"        {each}\n" for each in (*self.statements, last))

    def module(self, device: str) -> torch.nn.Module:
        scope: dict[str, Any] = {"torch": torch}
        exec(self.source, scope)
        module: torch.nn.Module = scope["Program"]().to(device)
        return module


def program(chance: random.Random, *, shows_parameters: bool) -> Program:
    """Make a program whose statements run, of up to eight; its results may be its parameters, or views of them."""
    views = _VIEWS if shows_parameters else tuple(each for each in _VIEWS if not each.startswith("self."))
    module = Program((), ("a",), nests=False).module("cpu")
    known: dict[str, Any] = {name: torch.rand(ROWS, COLUMNS) for name in ARGUMENTS}
    statements: list[str] = []
    for _ in range(100):
        if len(statements) >= chance.randint(2, 8):
            break
        x, y = chance.choice(list(known)), chance.choice(list(known))
        kinds = (_MADE, _MADE, views, views, _CHANGES, _BREAKS if chance.random() < 0.15 else views)
        kind = chance.choice(kinds)
        line = chance.choice(kind).format(x=x, y=y)
        name = f"v{len(statements)}"
        line = line if kind is _CHANGES else f"{name} = {line}"
        try:
            with torch.no_grad():
                exec(line, {"torch": torch, "self": module}, known)
        except (RuntimeError, IndexError, ValueError):
            continue
        statements.append(line)
    results = tuple(chance.choices(list(known), k=chance.randint(1, 4)))
    return Program(tuple(statements), results, nests=chance.random() < 0.3)


@dataclass(frozen=True)
class Call:
    """How a module is called, and what is done then."""

    arguments: tuple[str, ...]
    rows: int
    mode: str  # "grad", "no_grad", "inference"
    seed: int
    then: tuple[str, ...]

    def without_the_past(self) -> Call:
        """Leave out what uses arguments and results of earlier calls."""
        ways = tuple("new" if each in ("kept", "result") else each for each in self.arguments)
        return replace(self.without("wait"), arguments=ways)

    def without(self, what: str) -> Call:
        return replace(self, then=tuple(each for each in self.then if each != what))


_WAYS = ("new", "new", "new", "kept", "first", "needs", "slice", "wide", "transposed", "result")
_AFTER = ("backward", "backward", "wait", "change result", "change weight", "move weight", "drop", "step", "eval", "autocast")


def calls(chance: random.Random, count: int = 7) -> list[Call]:
    """Make calls, most of them like others: only those are replayed."""
    habits = [_call(chance) for _ in range(2)]
    return [chance.choice(habits) if chance.random() < 0.7 else _call(chance) for _ in range(count)]


def _call(chance: random.Random) -> Call:
    then = tuple(each for each in _AFTER if chance.random() < 0.2)
    mode = chance.choice(("grad", "grad", "no_grad", "inference"))
    arguments = tuple(chance.choice(_WAYS) for _ in ARGUMENTS)
    return Call(arguments, chance.choice((ROWS, ROWS, ROWS, ROWS + 1)), mode, chance.randrange(1000), then)
