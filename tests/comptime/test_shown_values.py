"""Values read in a callback show as much as Python's own `repr`, and run no code of the user."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from dataclasses import dataclass, field

import pytest
import torch

from dynx.comptime import comptime


@dataclass
class Options:
    width: int = 3
    name: str = "x"
    hidden: int = field(default=1, repr=False)


@dataclass(frozen=True)
class Frozen:
    width: int
    inner: Options


@dataclass(slots=True)
class Slotted:
    width: int
    tensor: torch.Tensor


class Plain:
    def __repr__(self):
        raise AssertionError("code of the user runs")


@dataclass
class Unfriendly:
    plain: Plain = field(default_factory=Plain)

    def __getattribute__(self, name):
        if name == "plain":
            raise AssertionError("code of the user runs")
        return super().__getattribute__(name)


def limited():
    return []


VALUES = {
    "dataclass": (Options(), "Options(width=3, name='x')"),
    "frozen": (Frozen(1, Options(2)), "Frozen(width=1, inner=Options(width=2, name='x'))"),
    "nested deeply": (Frozen(1, Frozen(2, Frozen(3, Options()))), "Frozen(width=1, inner=Frozen(width=2, inner=Frozen(…)))"),
    "slots": (Slotted(2, torch.ones(3)), "Slotted(width=2, tensor=Tensor(float32, [3]))"),
    "plain object": (Plain(), "<Plain>"),
    "overridden access": (Unfriendly(), "Unfriendly(plain=<Plain>)"),
    "defaultdict": (defaultdict(list, {"k": [1]}), "defaultdict(list, {'k': [1]})"),
    "empty defaultdict": (defaultdict(int), "defaultdict(int, {})"),
    "defaultdict of a function": (defaultdict(limited, {1: 2}), "defaultdict(limited, {1: 2})"),
    "deque": (deque([1, 2], maxlen=3), "deque([1, 2], maxlen=3)"),
    "unlimited deque": (deque([1]), "deque([1])"),
    "ordered": (OrderedDict(a=1), "OrderedDict({'a': 1})"),
    "range": (range(4), "range(0, 4)"),
    "range with a start": (range(1, 9), "range(1, 9)"),
    "range with steps": (range(0, 9, 2), "range(0, 9, 2)"),
    "slice": (slice(3), "slice(None, 3, None)"),
    "slice with a start": (slice(1, None, 2), "slice(1, None, 2)"),
}


def texts_of(function, *args, names):
    """Return what `ctx.get_local` shows for names of locals, in the order of the callbacks."""
    found = []

    def read(ctx):
        found.append([str(ctx.get_local(name)) for name in names])

    torch.compile(function, backend="eager")(torch.ones(3), *args, read)
    return found


@pytest.mark.parametrize(("value", "text"), VALUES.values(), ids=VALUES)
def test_an_argument_that_the_code_has_not_used(value, text):
    def f(x, value, read):
        comptime(read)
        return x + 1, value

    assert texts_of(f, value, names=["value"]) == [[text]]


# not a deque: torch itself takes the limit of an argument for None
USED = ["dataclass", "frozen", "defaultdict", "empty defaultdict", "ordered", "range", "range with a start", "range with steps"]


@pytest.mark.parametrize(("value", "text"), [VALUES[name] for name in USED], ids=USED)
def test_an_argument_that_the_code_has_used(value, text):
    def f(x, value, read):
        n = 2 if value else 1
        comptime(read)
        return x + n, value

    assert texts_of(f, value, names=["value"]) == [[text]]


def test_values_that_the_code_created_or_changed():
    def f(x, options, read):
        options.width = 7
        made = Options(5, "y")
        made.name = x
        counts = defaultdict(int)
        counts["a"] += 1
        recent = deque([1, 2, 3], maxlen=2)
        comptime(read)
        options.width = 8
        return x + made.width + counts["a"] + recent[0]

    assert texts_of(f, Options(), names=["options", "made", "counts", "recent"]) == [
        [
            "Options(width=7, name='x')",
            "Options(width=5, name=Tensor(float32, [3]))",
            "defaultdict(int, {'a': 1})",
            "deque([2, 3], maxlen=2)",
        ]
    ]
