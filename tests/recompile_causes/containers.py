"""Lists, tuples, dicts and sets, and attributes of objects."""

from __future__ import annotations

import types
from collections import OrderedDict, defaultdict, namedtuple

from support.restoring import attribute, removed

from recompile_causes.base import DYNAMIC, STEADY, Cause, cause, changing, ones


@cause
def the_length_of_a_list():
    def summed(x, items):
        return x + sum(items)  # HERE

    return Cause(
        summed,
        (ones(3), [1, 2]),
        (ones(3), [1, 2, 3]),
        "length",
        "items",
        "2",
        "3",
        rule="DX104",
        advised=lambda: Cause(summed, (ones(3), [1, 2, 0]), (ones(3), [1, 2, 0])),
    )


@cause
def an_item_of_a_list():
    def first_of(x, items):
        return x + items[0]  # HERE

    return Cause(first_of, (ones(3), [1, 2]), (ones(3), [5, 2]), "value", "items[0]", "1", "5", rule="DX114", advised=DYNAMIC)


@cause
def an_empty_list():
    def counted(x, items):
        return x + len(items)  # HERE

    return Cause(counted, (ones(3), []), (ones(3), [1]), "length", "items", "0", "1", rule="DX104", advised=STEADY)


@cause
def an_item_of_a_tuple():
    def second_of(x, pair):
        return x + pair[1]  # HERE

    return Cause(second_of, (ones(3), (1, 2)), (ones(3), (1, 3)), "value", "pair[1]", "2", "3", rule="DX114", advised=DYNAMIC)


@cause
def a_field_of_a_namedtuple():
    Point = namedtuple("Point", "x y")

    def moved(x, point):
        return x + point.y  # HERE

    return Cause(
        moved, (ones(3), Point(1, 2)), (ones(3), Point(1, 3)), "value", "point.y", "2", "3", rule="DX114", advised=DYNAMIC
    )


@cause
def a_value_of_a_dict():
    def looked_up(x, table):
        return x + table["a"]  # HERE

    return Cause(
        looked_up, (ones(3), {"a": 1}), (ones(3), {"a": 2}), "value", "table['a']", "1", "2", rule="DX114", advised=DYNAMIC
    )


@cause
def the_keys_of_a_dict():
    def counted(x, table):
        return x + sum(table.values())  # HERE

    return Cause(
        counted,
        (ones(3), {"a": 1}),
        (ones(3), {"a": 1, "b": 2}),
        "keys",
        "table",
        "no 'b'",
        "'b'",
        rule="DX104",
        advised=STEADY,
    )


@cause
def another_key_of_a_dict():
    def counted(x, table):
        return x + (1 if next(iter(table)) == "a" else 2)  # HERE

    return Cause(counted, (ones(3), {"a": 1}), (ones(3), {"b": 1}), "keys", "table", "'a'", "'b'", rule="DX104", advised=STEADY)


@cause
def a_missing_key():
    def looked_up(x, table):
        return x + 1 if "a" in table else x + 2  # HERE

    return Cause(
        looked_up,
        (ones(3), {"b": 1}),
        (ones(3), {"b": 1, "a": 1}),
        "keys",
        "table",
        "no 'a'",
        "'a'",
        rule="DX104",
        advised=STEADY,
    )


@cause
def a_member_of_a_set():
    def looked_up(x, names):
        return x + 1 if "a" in names else x + 2  # HERE

    return Cause(looked_up, (ones(3), {"a"}), (ones(3), {"b"}), "keys", "names", "'a'", "no 'a'", rule="DX104", advised=STEADY)


@cause
def the_type_of_a_dict():
    def looked_up(x, table):
        return x + table["a"]  # HERE

    first, second = (ones(3), {"a": 1}), (ones(3), defaultdict(int, a=1))
    return Cause(looked_up, first, second, "type", "table", "<class 'dict'>", "<class 'collections.defaultdict'>")


@cause
def an_ordered_dict_in_another_order():
    def counted(x, table):
        return x + next(iter(table.values()))  # HERE

    first, second = OrderedDict(a=1, b=2), OrderedDict(b=2, a=1)
    return Cause(
        counted, (ones(3), first), (ones(3), second), "keys", "table", "'a', 'b'", "'b', 'a'", rule="DX104", advised=STEADY
    )


@cause
def an_attribute_of_an_object():
    holder = types.SimpleNamespace(scale=1)

    def scaled(x):
        return x * holder.scale  # HERE

    return changing(
        scaled, "value", "holder.scale", "1", "2", lambda: attribute(holder, "scale", 2), rule="DX114", advised=DYNAMIC
    )


@cause
def a_deleted_attribute():
    class Holder:
        pass

    holder = Holder()
    holder.scale = 2

    def scaled(x):
        return x * getattr(holder, "scale", 1)  # HERE

    return changing(scaled, "attribute", "holder.scale", "present", "absent", lambda: removed(holder, "scale"))
