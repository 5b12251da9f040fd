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
    kind: str = ""  # this and the next three are left out if the program does not recompile, since it follows the advice
    source: str = ""
    expected: str | None = None
    got: str | None = None
    change: Callable[[], Any] = contextlib.nullcontext  # a context manager around the second call
    options: dict[str, Any] = field(default_factory=lambda: {"dynamic": False})
    rule: str | None = None
    advised: Callable[[], Cause] | str | None = None  # how to follow the advice: DYNAMIC, STEADY or a changed program
    guarded_in: Callable[..., Any] | None = None  # the function with the line that asked for the guard, if not `function`


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
    """Create a cause that is not in the arguments: something else changes between the calls."""
    return Cause(function, (ones(3),), (ones(3),), kind, source, expected, got, change, **more)


def ambient(name, expected, got, change, rule):
    """Create a cause in the ambient state of torch; code is needed for each state, so the advice is not to change it."""
    return changing(plus_one, "global_state", name, f"{name} {expected}", f"{name} {got}", change, rule=rule, advised=STEADY)
