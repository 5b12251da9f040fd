"""A cause of a recompile: a program, what changes between two calls, and the reason that dynx has to report."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

DYNAMIC = "compile with dynamic=True"
STEADY = "make both calls as the second"


@dataclass
class Cause:
    """A program, what changes between two calls, and the expected reason of the recompile."""

    function: Callable[..., Any]
    first: tuple[Any, ...]
    second: tuple[Any, ...]
    kind: str = ""  # kind, source, expected and got stay empty for a program that follows the advice and does not recompile
    source: str = ""
    expected: str | None = None
    got: str | None = None
    change: Callable[[], Any] = contextlib.nullcontext  # a context manager around the second call
    options: dict[str, Any] = field(default_factory=lambda: {"dynamic": False})
    rule: str | None = None
    advised: Callable[[], Cause] | str | None = None  # how to follow the advice: DYNAMIC, STEADY or a changed program
    guarded_in: Callable[..., Any] | None = None  # the function with the line that requested the guard, if not `function`


CAUSES: dict[str, Callable[[], Cause]] = {}


def cause(create):
    """Register a function that creates a cause."""
    CAUSES[create.__name__] = create
    return create


def ones(*size, **options):
    return torch.ones(*size, **options)


def plus_one(x):
    return x + 1  # HERE


def times(x, n):
    return x * n  # HERE


def changing(function, kind, source, expected, got, change, **more):
    """Create a cause whose two calls have equal arguments: `change` is in effect during the second call."""
    return Cause(function, (ones(3),), (ones(3),), kind, source, expected, got, change, **more)


def ambient(name, expected, got, change, rule):
    """Create a cause in torch's global state; the advice is to leave the state unchanged, as each state needs its own code."""
    return changing(plus_one, "global_state", name, f"{name} {expected}", f"{name} {got}", change, rule=rule, advised=STEADY)
