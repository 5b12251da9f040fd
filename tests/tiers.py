"""Which tests run: `make test` runs a few cases of each test, `make test-all SHARD=1/4` one of four parts of all tests."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

import pytest


def with_cases(items: Sequence[pytest.Item], most: int | None) -> list[pytest.Item]:
    """Return up to `most` cases of each test, spread over its parameters; all if it needs a GPU or is marked `every_case`."""
    if most is None:
        return list(items)
    cases = defaultdict(list)
    for item in items:
        if item.get_closest_marker("gpu") is None and item.get_closest_marker("every_case") is None:
            cases[test_of(item)].append(item)
    left_out = set()
    for of_one_test in cases.values():
        last = len(of_one_test) - 1
        kept = {round(number * last / max(1, most - 1)) for number in range(most)} if last >= most else range(last + 1)
        left_out |= {item for number, item in enumerate(of_one_test) if number not in kept}
    return [item for item in items if item not in left_out]


def in_shard(items: Sequence[pytest.Item], shard: str) -> list[pytest.Item]:
    """Return the tests of a shard, "2/4" for example; all cases of a test are in one shard, where they share fixtures."""
    match = re.fullmatch(r"(\d+)/(\d+)", shard)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise pytest.UsageError(f"--shard {shard}: expected the number of a shard and how many there are, such as 2/4")
    number, of = int(match[1]), int(match[2])
    tests = {test: index for index, test in enumerate(dict.fromkeys(map(test_of, items)))}
    return [item for item in items if tests[test_of(item)] % of == number - 1]


def test_of(item: pytest.Item) -> str:
    """Return the id of the test function of an item, without its parameters."""
    return item.nodeid.partition("[")[0]
