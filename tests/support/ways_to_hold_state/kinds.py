"""Kinds of state, of which torch compiles some changes right and loses others; and the table of the ways to hold them."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, NamedTuple


class Items(list):
    """A subclass of list."""


class Numbers(set):
    """A subclass of set, whose changes torch before 2.15 loses."""


class Kind(NamedTuple):
    """A kind of state: how it is made, changed, and read for a comparison."""

    make: Callable[[], Any]
    mutate: Callable[[Any], None]
    read: Callable[[Any], Any]


def append(state):
    state.append(1)


def count(state):
    state["n"] += 1


def add(state):
    state.add(len(state))


def push(state):  # torch loses what `append` removes from a full deque
    state.append(state[-1] + 1)


def move(state):  # torch loses the order
    state.move_to_end(next(iter(state)))


KINDS = {
    "list": Kind(list, append, list),
    "list subclass": Kind(Items, append, list),
    "dict": Kind(lambda: {"n": 0}, count, dict),
    "set subclass": Kind(lambda: Numbers([0]), add, sorted),
    "full deque": Kind(lambda: deque([0, 1], maxlen=2), push, list),
    "ordered dict": Kind(lambda: OrderedDict.fromkeys("abc"), move, list),
}

WAYS: dict[str, Callable[[Any, Any], Any]] = {}


def way(function):
    WAYS[function.__name__] = function
    return function
