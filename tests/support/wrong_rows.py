"""Programs that torch compiles to something else than eager code, each the smallest of its kind.

Each function returns `fn`, and a tuple of arguments for each call, made anew. `fn` returns a value, and may mutate its
arguments. `row` says in which releases of torch the compiled code is wrong.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

RELEASES = ("2.11", "2.13", "2.15")
X = torch.ones(2)


class Row(NamedTuple):
    make: Callable[[], tuple[Any, ...]]  # returns `fn`, and the arguments of each call
    wrong_in: tuple[str, ...]  # releases of torch


ROWS: dict[str, Row] = {}


def row(*wrong_in):
    def add(make):
        ROWS[make.__name__] = Row(make, wrong_in)
        return make

    return add


class Tags(set):
    pass


class Items(list):
    pass


class Table(dict):
    pass


class Queue(collections.deque):
    pass


class Ordered(collections.OrderedDict):
    pass


@row("2.11", "2.13")
def set_subclass_add():
    def fn(tags, x):
        tags.add(9)
        return x * 2

    return fn, (Tags({1}), X)


@row("2.11", "2.13")
def set_subclass_update():
    def fn(tags, x):
        tags |= {9}
        return x * 2

    return fn, (Tags({1}), X)


@row("2.11", "2.13")
def set_subclass_difference():
    def fn(tags, x):
        tags -= {1}
        return x * 2

    return fn, (Tags({1, 2}), X)


@row("2.11", "2.13")
def set_subclass_clear():
    def fn(tags, x):
        tags.clear()
        return x * 2

    return fn, (Tags({1}), X)


@row("2.11", "2.13")
def set_subclass_returned():
    def fn(x):
        return Tags([1, 2]), x * 2

    return fn, (X,)


@row("2.13")
def set_difference_in_place():
    def fn(tags, x):
        other = tags
        other -= {1}
        return x * 2

    return fn, ({1, 2}, X)


@row("2.11", "2.13")
def list_subclass_iadd():
    def fn(items, x):
        items += [5]
        return x * 2

    return fn, (Items([1]), X)


@row("2.11", "2.13")
def list_subclass_imul_alias():
    def fn(items, x):
        other = items
        items *= 2
        return other is items, type(items).__name__, x * 2

    return fn, (Items([1]), X)


@row("2.11", "2.13")
def str_of_a_mutated_list_subclass():
    def fn(items, x):
        items.append(7)
        return f"{items}", x * 2

    return fn, (Items([1]), X)


@row("2.11", "2.13")
def str_of_a_mutated_dict_subclass():
    def fn(table, x):
        table["b"] = 2
        return str(table), x * 2

    return fn, (Table(a=1), X)


class Point:
    def __init__(self):
        self.x = 1

    def __str__(self):
        return f"P{self.x}"


@row("2.11", "2.13")
def str_of_a_mutated_object():
    def fn(point, x):
        point.x = 2
        return f"{point}", x * 2

    return fn, (Point(), X)


@row("2.11", "2.13", "2.15")
def move_to_end():
    def fn(table, x):
        table.move_to_end("a")
        return x * 2

    return fn, (collections.OrderedDict(a=1, b=2), X)


@row("2.11", "2.15")
def move_to_end_then_set():
    def fn(table, x):
        table.move_to_end("a")
        table["c"] = 3
        return x * 2

    return fn, (collections.OrderedDict(a=1, b=2), X)


@row("2.15")
def subclass_move_to_end():
    def fn(table, x):
        table.move_to_end("a")
        return x * 2

    return fn, (Ordered(a=1, b=2), X)


@row("2.11", "2.13", "2.15")
def full_deque_appendleft():
    def fn(queue, x):
        queue.appendleft(9)
        return x * 2

    return fn, (collections.deque([1, 2], maxlen=2), X)


@row("2.11", "2.13", "2.15")
def full_deque_moving_average():
    def fn(queue, x):
        queue.append(x)
        return sum(queue) / len(queue)

    return fn, (collections.deque([X * 2, X * 8], maxlen=2), X)


@row("2.11", "2.13", "2.15")
def full_deque_popleft():
    def fn(queue, x):
        queue.append(3)
        return queue.popleft(), x * 2

    return fn, (collections.deque([1, 2], maxlen=2), X)


class Slotted:
    __slots__ = ("attr",)


@row("2.11", "2.13", "2.15")
def delete_an_unset_slot():
    def fn(slotted, x):
        try:
            del slotted.attr
        except AttributeError:
            return "raised", x * 2
        return "deleted", x * 2

    return fn, (Slotted(), X)


@row("2.11", "2.13", "2.15")
def copy_of_an_ordered_dict_subclass():
    def fn(table, x):
        return type(table.copy()).__name__, x * 2

    return fn, (Ordered(a=1), X)


@row("2.11", "2.13", "2.15")
def fromkeys_of_a_class():
    def fn(table, x):
        return type(type(table).fromkeys(["x"])).__name__, x * 2

    return fn, (Ordered(a=1), X)


@row("2.15")
def copy_of_a_deque_subclass():
    def fn(queue, x):
        return type(queue.copy()).__name__, x * 2

    return fn, (Queue([1]), X)


@row("2.15")
def str_of_a_set_subclass():
    def fn(tags, x):
        return str(tags), x * 2

    return fn, (Tags({1, 2}), X)


class Missing(dict):
    def __missing__(self, key):
        return 42


@row("2.11", "2.13", "2.15")
def explicit_getitem_with_missing():
    def fn(table, x):
        try:
            return dict.__getitem__(table, "zz"), x * 2
        except KeyError:
            return "KeyError", x * 2

    return fn, (Missing(), X)


class Short(list):
    def __len__(self):
        return 1


@row("2.11", "2.13", "2.15")
def overridden_len():
    def fn(items, x):
        total = 0
        for item in items:
            total += item
        return x * total

    return fn, (Short([1, 2]), X), (Short([1, 2, 3]), X)


@row("2.11", "2.13")
def list_in_itself():
    def fn(items, x):
        items.append(items)
        return x * 2

    return fn, ([1], X)


class Counting(type):
    calls = 0

    def __call__(cls, *args):
        Counting.calls += 1
        return super().__call__(*args)


class Counted(metaclass=Counting):
    pass


@row("2.11", "2.13", "2.15")
def metaclass_call():
    def fn(x):
        before = Counting.calls
        Counted()
        return Counting.calls - before, x * 2

    return fn, (X,)


@row("2.11", "2.13", "2.15")
def generator_with_finally():
    log = []

    def numbers():
        try:
            yield 1
            yield 2
        finally:
            log.append("closed")

    def fn(x):
        del log[:]
        for value in numbers():  # noqa: B007 - it is used below
            break
        log.append("after")
        return list(log), x * value

    return fn, (X,)


@row("2.11", "2.13")
def str_of_a_key_error():
    def fn(x):
        try:
            raise KeyError("k")
        except KeyError as error:
            return str(error), x * 2

    return fn, (X,)


@row("2.11", "2.13", "2.15")
def cached_function_with_side_effect():
    log = []

    @functools.lru_cache
    def note(value):
        log.append(value)
        return value

    def fn(log, x):
        return x * note(1) * note(1)

    return fn, (log, X)


@row("2.11", "2.13", "2.15")
def numpy_sum():
    def fn(array):
        return type(array.sum()).__name__

    return fn, (np.ones(2),)


@row("2.15")
def data_assigned():
    def fn(x, y):
        x.data = y
        return x * 2

    return fn, (torch.ones(2), torch.zeros(2))


def outcomes(fn, calls):
    """Return what each call returns or raises, and what it leaves in its arguments, as plain data."""
    return [(_result(fn, args), _plain(list(args), {})) for args in calls]


def _result(fn, args):
    try:
        return _plain(fn(*args), {})
    except Exception as error:  # noqa: BLE001 - what is raised is the outcome
        return "raised", type(error).__name__


def _plain(value, seen):
    """Return a value as plain data: its class, its items by the methods of the built-in class, which parts are one object."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if id(value) in seen:
        return "same as", seen[id(value)]
    seen[id(value)] = len(seen)
    kind = type(value).__name__
    if isinstance(value, torch.Tensor):
        return kind, value.tolist(), sorted(vars(value))
    for base in (collections.OrderedDict, dict):
        if isinstance(value, base):
            return kind, [(key, _plain(item, seen)) for key, item in base.items(value)]
    if isinstance(value, set):
        return kind, sorted(map(repr, set.__iter__(value)))
    for base in (collections.deque, list, tuple):
        if isinstance(value, base):
            return kind, [_plain(item, seen) for item in base.__iter__(value)]
    return (kind, _plain(vars(value), seen)) if hasattr(value, "__dict__") else kind
