"""Equal codecs have the same hash in every process, and any change gives another one."""

import subprocess
import sys
from functools import partial

import pytest
import torch

from dynx import saved
from dynx.errors import UsageError
from dynx.saved._digest import digest

FACTOR = 2.0


def scaled(x, *, by=2.0):
    return x * by


def reads_global(x):
    return x * FACTOR


def test_equal_functions():
    def make(factor):
        return lambda x: x * factor

    assert digest(make(2.0)) == digest(make(2.0))
    assert digest(make(2.0)) != digest(make(3.0))


def test_partials():
    assert digest(partial(scaled, by=2.0)) == digest(partial(scaled, by=2.0))
    assert digest(partial(scaled, by=2.0)) != digest(partial(scaled, by=3.0))


def test_globals(monkeypatch):
    before = digest(reads_global)
    monkeypatch.setitem(globals(), "FACTOR", 3.0)
    assert digest(reads_global) != before


def test_functions_that_call_themselves():
    def count(n):
        return 0 if n == 0 else count(n - 1)

    assert digest(count)


@pytest.mark.parametrize(
    ("first", "second"),
    [(1, True), (0.0, -0.0), ("1", 1), ((1, 2), (12,)), (torch.float32, torch.float64), (frozenset({1}), frozenset({2}))],
    ids=str,
)
def test_values_that_differ(first, second):
    assert digest(first) != digest(second)


@pytest.mark.parametrize("value", [[1], {"a": 1}, torch.ones(1), object()], ids=lambda value: type(value).__name__)
def test_values_that_may_change(value):
    with pytest.raises(UsageError, match="cache_hash="):
        digest(lambda: value)


def test_rules_differ_in_every_option():
    fp8 = saved.codecs.fp8
    rules = [
        saved.rule(fp8()),
        saved.rule(fp8("e5m2")),
        saved.rule(fp8(per="tensor")),
        saved.rule(fp8(per="block", block=64)),
        saved.rule(fp8(per="block", block=32)),
        saved.rule(fp8(), min_numel=1),
        saved.rule(fp8(), dtype=torch.float32),
        saved.rule(fp8(), name="a"),
        saved.rule(fp8(), module="a"),
        saved.rule(fp8(), line="a.py:1"),
        saved.rule(fp8(), mask_only=False),
        saved.rule(fp8(), skip=()),
        saved.rule(saved.codecs.int8()),
    ]
    assert len({digest(rule) for rule in rules}) == len(rules)
    assert digest(rules[0], rules[1]) != digest(rules[1], rules[0])


PROGRAM = """
from functools import partial
import torch
from dynx import saved
from dynx.saved._digest import digest
level = {1, 2, 3, "a", "b"}
own = saved.Codec("own", lambda x: x * len(frozenset({"x", "yy", "z"})), partial(torch.mul, other=1 / 3))
print(digest(saved.rule(saved.codecs.fp8()), saved.rule(saved.codecs.bits()), saved.rule(own)))
"""


@pytest.mark.slow
def test_other_hash_seeds():
    found = set()
    for seed in ("0", "1"):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={"PYTHONHASHSEED": seed, "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        )
        found.add(done.stdout)
    assert len(found) == 1
