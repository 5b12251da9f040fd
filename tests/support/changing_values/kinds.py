"""The table of changing values: generators that yield a function of a tensor, then change what the function reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import nn

CASES: dict[str, Callable[[], Iterator[Any]]] = {}
linear = nn.Linear(3, 3)


def case(make):
    """Add a generator to the table."""
    CASES[make.__name__] = make
    return make
