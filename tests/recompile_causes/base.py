"""A cause of a recompile: a program, what changes, and what a reason has to say of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

DYNAMIC = "with dynamic=True"
STEADY = "as in the second call from the first call on"


@dataclass
class Cause:
    """One program, what changes, and the reason to expect."""

    function: Callable[..., Any]
    first: tuple[Any, ...]
    second: tuple[Any, ...]
    kind: str = ""  # none of the four where following advice leaves nothing to tell
    source: str = ""
    expected: str | None = None
    got: str | None = None
    change: Callable[[], Any] = contextlib.nullcontext  # a context around the second call
    options: dict[str, Any] = field(default_factory=lambda: {"dynamic": False})
    rule: str | None = None
    advised: Callable[[], Cause] | str | None = None  # the same program after the advice was followed: DYNAMIC, STEADY or one
    asks: Callable[..., Any] | None = None  # whose line asked for the guard, where it is not the function's


CAUSES: dict[str, Callable[[], Cause]] = {}


def cause(make):
    CAUSES[make.__name__] = make
    return make


def ones(*size, **options):
    return torch.ones(*size, **options)


def plus_one(x):
    return x + 1  # HERE


def times(x, n):
    return x * n  # HERE


def changing(function, kind, source, expected, got, change, **more):
    """Make a cause that lies outside the arguments."""
    return Cause(function, (ones(3),), (ones(3),), kind, source, expected, got, change, **more)


def ambient(name, expected, got, change, rule):
    """Make a cause that lies in the state of torch: both states need code, so the advice is to stay in one."""
    return changing(plus_one, "global_state", name, f"{name} {expected}", f"{name} {got}", change, rule=rule, advised=STEADY)
