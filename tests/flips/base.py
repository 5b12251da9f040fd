"""A flip: two calls of a compiled function, and the reason that dynx has to report for either order of the calls."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch._dynamo.guards import GuardBuilder

STATIC = {"dynamic": False}
DYNAMIC = {"dynamic": True}


class Seen(NamedTuple):
    """The part of a `Reason` that depends on the order of the calls."""

    kind: str
    source: str
    expected: str | None
    got: str | None

    def mirrored(self) -> Seen:
        return self._replace(expected=self.got, got=self.expected)


@dataclass
class Flip:
    """Two calls, and the reason of the recompile: of the second call after the first (`there`), and in reverse (`back`)."""

    first: Callable[[], Any]
    second: Callable[[], Any]
    there: Seen
    back: Seen | None  # None: the guards of the second entry accept the first call
    why: str = ""  # why `back` is not `there` with the values exchanged

    def __post_init__(self):
        assert (self.back != self.there.mirrored()) == bool(self.why), "an exception has a reason"


FLIPS: dict[str, Callable[[], Flip]] = {}


def flip(create):
    """Register a function that creates a flip."""
    FLIPS[create.__name__] = create
    return create


def mirrored(first, second, kind, source, values):
    """Create a flip of two calls whose reasons differ by the exchanged values."""
    there = Seen(kind, source, *values)
    return Flip(first, second, there, there.mirrored())


def calls(function, first, second, there, back=None, why="", change=contextlib.nullcontext, options=STATIC):
    """Create a flip of one function: `change` is in effect during the calls with the arguments `second`."""
    compiled = torch.compile(function, backend="eager", **options)

    def changed():
        with change():
            compiled(*second)

    seen = Seen(*there)
    return Flip(lambda: compiled(*first), changed, seen, Seen(*back) if back else None if why else seen.mirrored(), why)


def argument(name, function, values, there, back=None, why="", options=STATIC):
    """Register a flip of the second argument of `function(x, n)`."""
    first, second = values
    FLIPS[name] = lambda: calls(function, (ones(3), first), (ones(3), second), there, back, why, options=options)


def changing(name, function, change, there, back=None, why=""):
    """Register a flip of something other than an argument: `change` is in effect during the second call."""
    FLIPS[name] = lambda: calls(function, (ones(3),), (ones(3),), there, back, why, change)


def has_guard(name):
    """Return whether the installed torch has a guard type, `COUNT_ITERATOR_MATCH`; torch 2.11 has fewer than later versions."""
    return hasattr(GuardBuilder, name)


def ones(*size, **options):
    return torch.ones(*size, **options)
