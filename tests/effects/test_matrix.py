"""Programs of which torch loses or changes an effect, or did: `check` finds what a comparison by hand finds, no more."""

from collections import OrderedDict, deque
from enum import Enum
from typing import NamedTuple

import pytest
import torch

import dynx


class Set(set):
    pass


class List(list):
    pass


class Dict(dict):
    pass


class Ordered(OrderedDict):
    pass


class Named:
    def __init__(self):
        self.number = 1

    def __str__(self):
        return f"number {self.number}"


class OneLong(list):
    def __len__(self):
        return 1


class Mode(Enum):
    NEAR = 1
    FAR = 2


WEIGHTS = {Mode.NEAR: 0.5, Mode.FAR: 2.0}


class WithSlot:
    __slots__ = ("attribute",)


class Default(dict):
    def __missing__(self, key):
        return 42


def add(items, x):
    items.add(9)
    return x * 2


def update(items, x):
    items |= {7}
    items.update([8])
    return x * 2


def new_set(x):
    return Set([1, 2]), x * 2


def extend(items, x):
    items += [5]
    return x * 2


def extend_by_name(items, x):
    items.__iadd__([5])
    return x * 2


def alias(items, x):
    other = items
    other += [2]
    return items is other, x * 2


def formatted_list(items, x):
    items.append(7)
    return f"{items}", x * 2


def formatted_object(named, x):
    named.number = 2
    return f"{named}", x * 2


def sum_of(items, x):
    return x * sum(item for item in items)


def copied(mapping, x):
    return mapping.copy(), x * 2


def delete_unset(value, x):
    try:
        del value.attribute
    except AttributeError:
        return "error", x * 2
    return "deleted", x * 2


def from_keys(mapping, x):
    return type(mapping).fromkeys(["x"]), x * 2


def missing(mapping, x):
    try:
        value = dict.__getitem__(mapping, "zz")
    except KeyError:
        value = "KeyError"
    return value, x * 2


def full_deque(items, x):
    items.append(5)
    return x * items[0]


def weighted(mode, x):
    return x * WEIGHTS[mode]


class Row(NamedTuple):
    fn: object
    make: object  # the arguments of both calls
    base: type | None = None  # by which an argument that is changed is read


def x():
    return torch.ones(3)


ROWS = {
    "set subclass, add": Row(add, lambda: [(Set([1]), x())] * 2, set),
    "set subclass, update": Row(update, lambda: [(Set([1]), x())] * 2, set),
    "set subclass, made in the frame": Row(new_set, lambda: [(x(),)] * 2),
    "list subclass, +=": Row(extend, lambda: [(List([1]), x())] * 2, list),
    "list subclass, __iadd__": Row(extend_by_name, lambda: [(List([1]), x())] * 2, list),
    "list subclass, += of an alias": Row(alias, lambda: [(List([1]), x())] * 2, list),
    "list subclass, formatted": Row(formatted_list, lambda: [(List([1]), x())] * 2, list),
    "object, formatted": Row(formatted_object, lambda: [(Named(), x())] * 2),
    "list subclass with __len__": Row(sum_of, lambda: [(OneLong([1, 2]), x()), (OneLong([1, 2, 3]), x())]),
    "OrderedDict subclass, copy": Row(copied, lambda: [(Ordered(a=1), x())] * 2),
    "slot that is not set": Row(delete_unset, lambda: [(WithSlot(), x())] * 2),
    "dict subclass, fromkeys": Row(from_keys, lambda: [(Dict(), x())] * 2),
    "dict subclass with __missing__": Row(missing, lambda: [(Default(), x())] * 2),
    "full deque": Row(full_deque, lambda: [(deque([1, 2], maxlen=2), x())] * 2),
    "member of an enum as a key": Row(weighted, lambda: [(Mode.NEAR, x()), (Mode.FAR, x())]),
    "list": Row(extend, lambda: [([1], x())] * 2, list),
    "set": Row(add, lambda: [({1}, x())] * 2, set),
    "dict": Row(copied, lambda: [({"a": 1}, x())] * 2),
}


def by_hand(row, fn):
    """Return what the calls did, as text."""
    done = []
    calls = row.make()
    for args in calls:
        result = fn(*args)
        state = sorted(row.base.__iter__(args[0])) if row.base is not None else None
        parts = result if isinstance(result, tuple) else (result,)
        values = [part.tolist() if isinstance(part, torch.Tensor) else part for part in parts]
        done.append((state, [(type(value), _items(value)) for value in values]))
    return done


def _items(value):
    if isinstance(value, dict):
        return list(dict.items(value))
    return sorted(set.__iter__(value)) if isinstance(value, set) else value


@pytest.mark.parametrize("name", ROWS)
def test_check_finds_what_a_comparison_by_hand_finds(name):
    row = ROWS[name]
    expected = by_hand(row, row.fn)
    torch._dynamo.reset()
    differs = by_hand(row, torch.compile(row.fn, backend="eager")) != expected
    report = dynx.check(row.fn, inputs=row.make(), calls=1)
    assert report.compiles
    assert bool(report.diffs) == differs, report.text


def test_this_torch_has_a_row_that_differs():
    """Otherwise the test above would compare nothing."""
    row = ROWS["slot that is not set"]
    (diff,) = dynx.check(row.fn, inputs=row.make()).diffs
    assert (diff.path, diff.kind, diff.eager, diff.compiled, diff.call) == ("result[0]", "value", "'error'", "'deleted'", 0)
