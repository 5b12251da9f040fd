"""Makes what differs as short as it still differs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

Case = TypeVar("Case")


def shortened(case: Case, shorter: Callable[[Case], Iterator[Case]], kind_of: Callable[[Case], Any]) -> Case:
    """Take a shorter case again and again, as long as there is one of the same kind."""
    kind = kind_of(case)
    while (found := next((each for each in shorter(case) if kind_of(each) == kind), None)) is not None:
        case = found
    return case


def without(values: tuple[Any, ...], index: int) -> tuple[Any, ...]:
    return values[:index] + values[index + 1 :]
