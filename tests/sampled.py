"""Parameters of tests with many similar cases: a part runs by default, the others with `make test-slow`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def sampled(cases: Iterable[Any], every: int, start: int = 0) -> list[Any]:
    """Return `cases` for `pytest.mark.parametrize`, marked slow but for the one at `start` and each `every`-th after it."""
    return [slow(case) if number % every != start % every else case for number, case in enumerate(cases)]


def slow(case: Any) -> Any:
    """Return one case for `pytest.mark.parametrize`, marked slow; a tuple is the values of several parameters."""
    return (
        pytest.param(*case, marks=pytest.mark.slow) if isinstance(case, tuple) else pytest.param(case, marks=pytest.mark.slow)
    )
