"""Lists, tuples, dicts, sets and other containers as arguments."""

from __future__ import annotations

import enum
from collections import Counter, OrderedDict, UserDict, defaultdict, deque
from types import MappingProxyType

import torch

from flips.base import argument, ones


class Key(enum.Enum):
    A = 1


def length(x, n):
    return x + len(n)


def has_a(x, n):
    return x + 1 if "a" in n else x - 1


argument("a longer list", length, ([1], [1, 2]), ("length", "n", "1", "2"))
argument("an empty tuple", length, ((), (1,)), ("length", "n", "0", "1"))
argument("an empty dict", length, ({}, {"a": 1}), ("keys", "n", "no 'a'", "'a'"))
argument("many new keys", length, ({"a": 1}, dict.fromkeys("abcdef", 1)), ("length", "n", "1", "6"))
argument("a text of another length", length, ("ab", "abc"), ("value", "n", "'ab'", "'abc'"))
argument("a longer deque", length, (deque([1]), deque([1, 2])), ("length", "n", "1", "2"))
argument("an item of a deque", lambda x, n: x + n[0], (deque([1]), deque([2])), ("value", "n[0]", "1", "2"))
argument(
    "a nested type",
    lambda x, n: x + n["a"][0],
    ({"a": [1]}, {"a": (1,)}),
    ("type", "n['a']", "<class 'list'>", "<class 'tuple'>"),
)
argument("a set", lambda x, n: x + sum(n), ({1, 2}, {1, 3}), ("value", "n", "{1, 2}", "{1, 3}"))
argument("a member of a set", has_a, ({"a"}, {"b"}), ("keys", "n", "'a'", "no 'a'"))
argument("a member of a frozenset", has_a, (frozenset("a"), frozenset("b")), ("keys", "n", "'a'", "no 'a'"))
argument("a new key", has_a, ({"b": 1}, {"b": 1, "a": 1}), ("keys", "n", "no 'a'", "'a'"))
argument(
    "the order of keys",
    lambda x, n: x + next(iter(n.values())),
    (OrderedDict(a=1, b=2), OrderedDict(b=2, a=1)),
    ("keys", "n", "'a', 'b'", "'b', 'a'"),
)
argument(
    "keys of a mapping proxy",
    lambda x, n: x + n["a"],
    (MappingProxyType({"a": 1}), MappingProxyType({"a": 1, "b": 2})),
    ("keys", "n", "'a'", "'a', 'b'"),
)
argument(
    "a value of a mapping proxy",
    lambda x, n: x + n["a"],
    (MappingProxyType({"a": 1}), MappingProxyType({"a": 2})),
    ("value", "n['a']", "1", "2"),
)
argument(
    "a view of keys",
    length,
    ({"a": 1}.keys(), {"a": 1, "b": 1}.keys()),
    ("value", "n", "dict_keys(['a'])", "dict_keys(['a', 'b'])"),
)
argument("a dict subclass", length, (defaultdict(int), defaultdict(int, k=1)), ("keys", "n", "no 'k'", "'k'"))
argument("a UserDict", lambda x, n: x + n["a"], (UserDict(a=1), UserDict(a=2)), ("value", "n.data['a']", "1", "2"))
argument(
    "a Counter",
    lambda x, n: x + n["a"],
    (Counter("a"), Counter("aa")),
    ("value", "n['a']", "1", "2"),
)
argument(
    "a dtype as key",
    lambda x, n: x + n[torch.float32],
    ({torch.float32: 1}, {torch.float32: 2}),
    ("value", "n[torch.float32]", "1", "2"),
)
argument("a tuple as key", lambda x, n: x + n[1, 2], ({(1, 2): 1}, {(1, 2): 2}), ("value", "n[(1, 2)]", "1", "2"))
argument(
    "an enum as key",
    lambda x, n: x + n[Key.A],
    ({Key.A: 1}, {Key.A: 2}),
    ("value", "n[list(dict.keys(n))[0]]", "1", "2"),
)
argument("an item counted from the end", lambda x, n: x + n[-1], ([1, 2], [1, 3]), ("value", "n[1]", "2", "3"))
argument(
    "more tensors in a list", lambda x, n: n[0] + len(n), ([ones(3)], [ones(3)] * 1 + [ones(3)]), ("length", "n", "1", "2")
)
