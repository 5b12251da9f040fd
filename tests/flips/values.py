"""Constants, None, types, functions, modules and iterators as arguments."""

from __future__ import annotations

import cmath
import enum
import functools
import itertools
import math

import torch

from flips.base import argument, calls, flip, has_guard, ones

WORDED = "a guard on None is worded otherwise than the guard on a value"
ANY_NAN = "the guard on a complex nan accepts every complex nan"
TYPED = "torch guards a tensor by its type first, and another value by the value"


class Age(int):
    pass


class Name(str):
    __slots__ = ()


class Weight(float):
    pass


class Mode(enum.Enum):
    UP = 1
    DOWN = 2


class Flags(enum.Flag):
    A = 1
    B = 2


def times(x, n):
    return x * n


def plus(x, n):
    return x + n


def by_truth(x, n):
    return x + 1 if n else x - 1


def by_none(x, n):
    return x + 1 if n is None else x - 1


def applied(x, n):
    return n(x)


argument("a bool and an int", times, (True, 1), ("value", "n", "True", "1"))
argument("a bool and None", by_truth, (True, None), ("value", "n", "True", "None"), ("none", "n", "None", "True"), WORDED)
argument("None and an int", by_none, (None, 3), ("none", "n", "None", "3"), ("value", "n", "3", "None"), WORDED)
argument(
    "None and a tensor",
    by_none,
    (None, ones(3)),
    ("none", "n", "None", "a Tensor"),
    ("type", "n", "<class 'torch.Tensor'>", "<class 'NoneType'>"),
    WORDED,
)
argument(
    "an int and a tensor",
    times,
    (2, ones(3)),
    ("value", "n", "2", "a Tensor"),
    ("type", "n", "<class 'torch.Tensor'>", "<class 'int'>"),
    TYPED,
)
argument("an int and a float", times, (2, 2.5), ("value", "n", "2", "2.5"))
argument("an int and a text", lambda x, n: x + 1 if n == 1 else x - 1, (1, "a"), ("value", "n", "1", "'a'"))
argument("nan and a float", times, (float("nan"), 2.0), ("value", "n", "nan", "2.0"))
argument(
    "a complex nan and a complex",
    times,
    (complex("nan"), 2j),
    ("value", "n", "nan", "2j"),
    ("value", "n", "2j", "(nan+0j)"),
    ANY_NAN,
)
argument("complex", times, (1j, 2j), ("value", "n", "1j", "2j"))
argument("bytes", lambda x, n: x + 1 if n == b"a" else x - 1, (b"a", b"b"), ("value", "n", "b'a'", "b'b'"))
argument(
    "long texts",
    lambda x, n: x + 1 if n == "a" * 90 else x - 1,
    ("a" * 90, "b" * 90),
    ("value", "n", "'" + "a" * 78 + "…", "'" + "b" * 78 + "…"),
)
argument("a dtype", lambda x, n: x.to(n), (torch.float64, torch.float16), ("value", "n", "torch.float64", "torch.float16"))
argument(
    "a device",
    lambda x, n: torch.ones(3, device=n),
    (torch.device("cpu"), torch.device("meta")),
    ("value", "n", "device(type='cpu')", "device(type='meta')"),
)
argument(
    "a memory format",
    lambda x, n: x.contiguous(memory_format=n),
    (torch.contiguous_format, torch.preserve_format),
    ("value", "n", "torch.contiguous_format", "torch.preserve_format"),
)
argument("a torch.Size", lambda x, n: x + n[0], (torch.Size([3]), torch.Size([4])), ("value", "n[0]", "3", "4"))
argument("a slice", lambda x, n: x[n], (slice(0, 1), slice(0, 2)), ("value", "n.stop", "1", "2"))
argument("a range", lambda x, n: x + len(n), (range(3), range(4)), ("value", "n.stop", "3", "4"))
if has_guard("CONSTANT_SUBCLASS_MATCH"):
    argument("an int subclass", times, (Age(2), Age(3)), ("value", "n", "2", "3"))
    argument("a float subclass", times, (Weight(2), Weight(3)), ("value", "n", "2.0", "3.0"))
    argument("a str subclass", lambda x, n: x + 1 if n == "a" else x - 1, (Name("a"), Name("b")), ("value", "n", "'a'", "'b'"))
argument("an enum", lambda x, n: x + 1 if n is Mode.UP else x - 1, tuple(Mode), ("object", "n", "Mode.UP", "Mode.DOWN"))
argument("a flag", lambda x, n: x + 1 if n is Flags.A else x - 1, tuple(Flags), ("object", "n", "Flags.A", "Flags.B"))
argument("a builtin class", lambda x, n: x + 1 if n is int else x - 1, (int, float), ("object", "n", "int", "float"))
argument("a class", lambda x, n: x + 1 if n is Age else x - 1, (Age, Weight), ("object", "n", "Age", "Weight"))
argument("a builtin function", lambda x, n: x + n([1, 2]), (max, min), ("function", "n", "max", "min"))
argument("a torch function", applied, (torch.sin, torch.cos), ("function", "n", "torch.sin", "torch.cos"))
argument(
    "a Python module",
    lambda x, n: x + n.pi,
    (math, cmath),
    ("object", "n", "module math", "module cmath"),
)
argument(
    "a partial", applied, (functools.partial(times, n=2), functools.partial(times, n=3)), ("value", "n.keywords['n']", "2", "3")
)


class Steps:
    def up(self, x):
        return x + 1

    def down(self, x):
        return x - 1


STEPS = Steps()
argument("a bound method", applied, (STEPS.up, STEPS.down), ("function", "n.__func__", "Steps.up", "Steps.down"))
argument(
    "a dispatch key set",
    lambda x, n: x + 1 if n.has(torch._C.DispatchKey.CPU) else x - 1,
    tuple(torch._C.DispatchKeySet(key) for key in (torch._C.DispatchKey.CPU, torch._C.DispatchKey.Meta)),
    ("value", "n", "DispatchKeySet(CPU)", "DispatchKeySet(Meta)"),
)


def iterated(create, function, first, second, there):
    return calls(function, (ones(3), create(*first)), (ones(3), create(*second)), there)


def _sum(x, n):
    return x + sum(n)


@flip
def a_tuple_iterator():
    return iterated(lambda *items: iter(items), _sum, (1, 2), (1, 2, 3), ("length", "n", "2", "3"))


@flip
def a_range_iterator():
    return iterated(
        lambda n: iter(range(n)), _sum, (2,), (3,), ("value", "n", "iterator of range(0, 2)", "iterator of range(0, 3)")
    )


if has_guard("COUNT_ITERATOR_MATCH"):

    @flip
    def a_count_iterator():
        return iterated(itertools.count, lambda x, n: x + next(n), (1,), (2, 3), ("value", "n", "count(1, 1)", "count(2, 3)"))


if has_guard("LIST_REVERSEITERATOR_LEN"):

    @flip
    def a_reversed_list():
        return iterated(lambda *items: reversed(list(items)), _sum, (1, 2), (1, 2, 3), ("length", "n", "2", "3"))
