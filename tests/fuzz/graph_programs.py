"""Random modules that view, mutate, save and return tensors, as readable source, and random calls of them."""

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
_OPERATORS = (
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
_MUTATIONS = (
    "{x}.add_(1)",
    "{x}.mul_({y})",
    "{x}.copy_({y})",
    "{x}[0] = 3",
    "self.total.add_({x}.detach().sum())",
    "self.total.mul_(0.5)",
)
_UNCAPTURABLE = ("{x} * {x}.detach().sum().item()", "{x}.detach().sum().cpu().to({x}.device) * {x}")


@dataclass(frozen=True)
class Program:
    statements: tuple[str, ...]
    results: tuple[str, ...]
    nests: bool  # results are returned in a dict and a list

    @property
    def source(self) -> str:
        outputs = ", ".join(self.results)
        last = f'return {{"all": [{outputs}], "more": ({self.results[0]}, 3, None)}}' if self.nests else f"return ({outputs},)"
        return _HEAD + "".join(f"        {line}\n" for line in (*self.statements, last))

    def module(self, device: str) -> torch.nn.Module:
        scope: dict[str, Any] = {"torch": torch}
        exec(self.source, scope)
        module: torch.nn.Module = scope["Program"]().to(device)
        return module


def random_program(rng: random.Random, *, returns_parameters: bool) -> Program:
    """Return a program of two to eight statements that run; if `returns_parameters`, it may return parameters or views."""
    views = _VIEWS if returns_parameters else tuple(view for view in _VIEWS if not view.startswith("self."))
    module = Program((), ("a",), nests=False).module("cpu")
    variables: dict[str, Any] = {name: torch.rand(ROWS, COLUMNS) for name in ARGUMENTS}
    statements: list[str] = []
    for _ in range(100):
        if len(statements) >= rng.randint(2, 8):
            break
        x, y = rng.choice(list(variables)), rng.choice(list(variables))
        kinds = (_OPERATORS, _OPERATORS, views, views, _MUTATIONS, _UNCAPTURABLE if rng.random() < 0.15 else views)
        kind = rng.choice(kinds)
        line = rng.choice(kind).format(x=x, y=y)
        name = f"v{len(statements)}"
        line = line if kind is _MUTATIONS else f"{name} = {line}"
        try:
            with torch.no_grad():
                exec(line, {"torch": torch, "self": module}, variables)
        except (RuntimeError, IndexError, ValueError):
            continue
        statements.append(line)
    results = tuple(rng.choices(list(variables), k=rng.randint(1, 4)))
    return Program(tuple(statements), results, nests=rng.random() < 0.3)


@dataclass(frozen=True)
class Call:
    """How a module is called, and the actions that follow."""

    arguments: tuple[str, ...]
    rows: int
    mode: str  # "grad", "no_grad", "inference"
    seed: int
    actions: tuple[str, ...]

    def without_earlier_tensors(self) -> Call:
        """Return the call without uses of arguments and results of earlier calls."""
        kinds = tuple("new" if kind in ("kept", "result") else kind for kind in self.arguments)
        return replace(self.without("wait"), arguments=kinds)

    def without(self, action: str) -> Call:
        return replace(self, actions=tuple(kept for kept in self.actions if kept != action))


_ARGUMENT_KINDS = ("new", "new", "new", "kept", "first", "needs", "slice", "wide", "transposed", "result")
_ACTIONS = ("backward", "backward", "wait", "change result", "change weight", "move weight", "drop", "step", "eval", "autocast")


def random_calls(rng: random.Random, count: int = 7) -> list[Call]:
    """Return random calls; most repeat one of two, since only repeated calls are replayed."""
    repeated = [_random_call(rng) for _ in range(2)]
    return [rng.choice(repeated) if rng.random() < 0.7 else _random_call(rng) for _ in range(count)]


def _random_call(rng: random.Random) -> Call:
    actions = tuple(action for action in _ACTIONS if rng.random() < 0.2)
    mode = rng.choice(("grad", "grad", "no_grad", "inference"))
    arguments = tuple(rng.choice(_ARGUMENT_KINDS) for _ in ARGUMENTS)
    return Call(arguments, rng.choice((ROWS, ROWS, ROWS, ROWS + 1)), mode, rng.randrange(1000), actions)
