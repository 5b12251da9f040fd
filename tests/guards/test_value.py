"""When two backends are the same: each row makes two, as a user would make them anew."""

from __future__ import annotations

import collections
import dataclasses
import functools
import gc
import math
import threading
import types
import warnings
import weakref

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import dynx
from dynx.errors import DynxWarning
from dynx.guards import keyed
from dynx.guards._compile.backend_value import value_of

LEVEL = 1


def backend(gm, inputs, level=0, **options):
    return gm.forward


def reads_globals(gm, inputs):
    return backend(gm, inputs, level=LEVEL + int(math.pi))


def calls_reader(gm, inputs):
    def inner():
        return reads_globals(gm, inputs)

    return inner()


def closing_over(value):
    def closure(gm, inputs):
        return backend(gm, inputs, level=value)

    return closure


def with_default(value):
    return lambda gm, inputs, level=value: gm.forward


def recursive():
    def even(gm, n):
        return n == 0 or odd(gm, n - 1)

    def odd(gm, n):
        return n != 0 and even(gm, n - 1)

    return even


class Options:
    def __init__(self, level):
        self.level = level

    def __call__(self, gm, inputs):
        return gm.forward


class Counts(Options):
    def __call__(self, gm, inputs):
        self.level += 1
        return gm.forward


@dataclasses.dataclass(frozen=True)
class Frozen:
    level: int

    def __call__(self, gm, inputs):
        return gm.forward


class Equal:
    def __init__(self, name):
        self.name = name

    def __eq__(self, other):
        return type(other) is Equal and other.name == self.name

    def __hash__(self):
        return hash(self.name)

    def __call__(self, gm, inputs):
        return gm.forward


def threading_local():
    return threading.local()


class OfPartial(functools.partial):
    pass


class Slots:
    __slots__ = ("level",)


class WithSlots(Slots):
    def __init__(self, level):
        self.level, self.more = level, 1

    def __call__(self, gm, inputs):
        return gm.forward


class Static:
    @staticmethod
    def read():
        return LEVEL

    def __call__(self, gm, inputs):
        return gm.forward


class Sets(Options):
    def __call__(self, gm, inputs):
        setattr(self, "level", 2)  # noqa: B010 - as users write


class OfClass:
    level = 1

    def __call__(self, gm, inputs):
        return gm.forward


class KeepsItsMethod:
    def __init__(self):
        self.inner = self.go

    def go(self, gm, inputs):
        return gm.forward

    __call__ = go


Named = collections.namedtuple("Named", "level")


def with_attribute(level):
    def attributed(gm, inputs):
        return gm.forward

    attributed.level = level
    return attributed


def counting():
    count = 0

    def counts(gm, inputs):
        nonlocal count
        count += 1
        return gm.forward

    return counts


def counting_globally():
    def counts(gm, inputs):
        global LEVEL
        LEVEL += 1

    return counts


SAME = {
    "name": lambda: "inductor",
    "function": lambda: backend,
    "lambda": lambda: lambda gm, inputs: gm.forward,
    "lambda that reads globals": lambda: lambda gm, inputs: reads_globals(gm, inputs),
    "partial": lambda: functools.partial(backend, level=1),
    "partial of a partial": lambda: functools.partial(functools.partial(backend, level=1), extra="a"),
    "partial with a dict": lambda: functools.partial(backend, options={"a": 1, "b": (2.0, None)}),
    "closure": lambda: closing_over(3),
    "closure over a closure": lambda: closing_over(closing_over((1, "a", torch.float32))),
    "closure over a module": lambda: closing_over(math),
    "default": lambda: with_default(-0.0),
    "nan": lambda: with_default(float("nan")),
    "recursion": recursive,
    "instance": lambda: Options(2),
    "frozen": lambda: Frozen(2),
    "equal": lambda: Equal("a"),
    "method": lambda: Options(2).__call__,
    "method of a list": lambda: SHARED.append,
    "instance that keeps its method": KeepsItsMethod,
    "namedtuple": lambda: closing_over(Named(1)),
    "attribute of a function": lambda: with_attribute(1),
}
SHARED: list = []


DIFFERENT = {
    "option": lambda n: functools.partial(backend, level=n),
    "type of an option": lambda n: functools.partial(backend, level=(1, True)[n]),
    "zeros": lambda n: with_default((0.0, -0.0)[n]),
    "closure": lambda n: closing_over(n),
    "default": lambda n: with_default(n),
    "code": lambda n: (lambda gm, inputs: gm.forward, lambda gm, inputs: gm.forward)[n],
    "name of an option": lambda n: functools.partial(backend, **{"ab"[n]: 1}),
    "dict": lambda n: functools.partial(backend, options={"a": n}),
    "instance": lambda n: Options(n),
    "class": lambda n: (Options, Counts)[n](1),
    "frozen": lambda n: Frozen(n),
    "equal": lambda n: Equal(str(n)),
    "attribute of a function": lambda n: with_attribute(n),
    "namedtuple": lambda n: closing_over(Named((1, 1.0)[n])),
    "partial of a kind": lambda n: OfPartial(backend, level=n),
    "slots": lambda n: WithSlots(n),
    "dtype": lambda n: closing_over((torch.float32, torch.float64)[n]),
}
BY_IDENTITY = {
    "closure over a list": lambda: closing_over([]),
    "closure over a tensor": lambda: closing_over(torch.ones(1)),
    "option that may be filled": lambda: functools.partial(backend, found={}),
    "list": lambda: functools.partial(backend, found=[1]),
    "instance that counts": lambda: Counts(0),
    "instance that holds a list": lambda: Options([1]),
    "slots": lambda: WithSlots(1),
    "static method": lambda: Static(),
    "instance that sets": lambda: Sets(1),
    "partial of a kind": lambda: OfPartial(backend, level=1),
    "function that counts": counting,
    "function that counts globally": counting_globally,
    "unhashable": lambda: types.SimpleNamespace(a=1),
}


@pytest.mark.parametrize("name", SAME)
def test_made_anew_it_is_the_same(name):
    made = [value_of(SAME[name]()) for _ in range(2)]
    assert made[0].key == made[1].key
    assert hash(made[0].key) == hash(made[1].key)
    assert made[0].by_identity == ()


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_differs_is_told_apart(name):
    assert value_of(DIFFERENT[name](0)).key != value_of(DIFFERENT[name](1)).key


@pytest.mark.parametrize("name", BY_IDENTITY)
def test_what_may_change_is_equal_to_itself_only(name):
    one, other = BY_IDENTITY[name](), BY_IDENTITY[name]()
    assert value_of(one).key == value_of(one).key
    assert value_of(one).key != value_of(other).key
    assert value_of(one).likeness == value_of(other).likeness
    assert value_of(one).by_identity


@pytest.mark.parametrize("make", [lambda: calls_reader, lambda: lambda gm, inputs: calls_reader(gm, inputs)])
@pytest.mark.parametrize(("where", "what", "now"), [(None, "LEVEL", 2), (math, "pi", 4.0), (None, "backend", print)])
def test_a_global_that_is_read_on_the_way_counts(monkeypatch, make, where, what, now):
    before = value_of(make()).key
    assert value_of(make()).key == before
    if where is None:
        monkeypatch.setitem(globals(), what, now)
    else:
        monkeypatch.setattr(where, what, now)
    assert value_of(make()).key != before


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3),
    max_leaves=5,
)


@given(PLAIN, PLAIN)
def test_plain_values_are_the_same_exactly_when_they_read_alike(one, other):
    def spelled(value):
        if isinstance(value, frozenset):
            return f"set {sorted(map(spelled, value))}"
        return f"tuple {[spelled(each) for each in value]}" if isinstance(value, tuple) else repr(value)

    same = value_of(closing_over(one)).key == value_of(closing_over(other)).key
    assert same == (spelled(one) == spelled(other))


def test_a_class_attribute_counts(monkeypatch):
    before = value_of(OfClass()).key
    assert value_of(OfClass()).key == before
    monkeypatch.setattr(OfClass, "level", 2)
    assert value_of(OfClass()).key != before


def partial_of_itself():
    options = {}
    options["self"] = options
    return functools.partial(backend, options=options)


def parent_and_child():
    parent = Options(1)
    parent.child = Options(2)
    parent.child.parent = parent
    return parent


@pytest.mark.parametrize(
    "make",
    [
        partial_of_itself,
        parent_and_child,
        lambda: types.MethodType(functools.partial(backend), 1),
        lambda: types.MethodType(functools.lru_cache(backend), 1),
        lambda: functools.lru_cache(backend),
        lambda: functools.partialmethod(backend),
        lambda: functools.singledispatch(backend),
        threading_local,
    ],
)
def test_odd_backends_have_a_value(make):
    odd = make()
    assert value_of(odd).key == value_of(odd).key


def test_a_key_keeps_nothing_alive():
    one = Options([1])
    key = value_of(one).key
    gone = weakref.ref(one)
    del one
    gc.collect()
    assert gone() is None
    assert key != value_of(Options([1])).key


def test_nothing_of_the_users_is_called():
    class Loud:
        def __getattribute__(self, name):
            if not name.startswith("__"):
                raise AssertionError(name)
            return object.__getattribute__(self, name)

        def __repr__(self):
            raise AssertionError

    value_of(closing_over(Loud()))


def test_keyed_gives_one_object():
    one = keyed(functools.partial(backend, level=5))
    assert keyed(functools.partial(backend, level=5)) is one
    assert keyed(functools.partial(backend, level=6)) is not one
    assert keyed(one) is one
    assert keyed("eager") == "eager"
    assert repr(one) == "<keyed backend partial>"
    with pytest.raises(TypeError, match="a backend is a name or a function"):
        keyed(3)


def test_a_keyed_backend_that_was_changed_is_not_shared():
    changed = Options(1)
    one = keyed(changed)
    changed.level = 2
    assert keyed(Options(1)) is not one


def test_a_keyed_backend_that_compiled_as_another_is_not_shared():
    changed = Options(7)
    one = keyed(changed)
    changed.level = 2
    torch.compile(torch.sin, backend=one)(torch.zeros(1))
    changed.level = 7
    assert keyed(Options(7)) is not one


def test_keyed_lets_torch_reuse(count_compiles):
    for _ in range(5):
        torch.compile(lambda x: x + 1, backend=keyed(lambda gm, inputs: count_compiles(gm, inputs)))
    f = [torch.compile(torch.sin, backend=keyed(functools.partial(count_compiles))) for _ in range(5)]
    assert [each(torch.zeros(1)).item() for each in f] == [0.0] * 5
    assert count_compiles.count == 1


def test_a_chosen_key_decides():
    one, other = keyed(closing_over([1]), key="mine"), keyed(closing_over([2]), key="mine")
    assert one is other
    assert keyed(closing_over([1]), key="yours") is not one


def test_it_says_once_what_sets_two_apart():
    def made(found):
        return lambda gm, inputs: found.append(gm) or gm.forward

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        kept = [dynx.compile(torch.sin, backend=made([])) for _ in range(4)]
    assert len(kept) == 4
    assert [(each.category, each.filename) for each in told] == [(DynxWarning, __file__)]
    text = str(told[0].message)
    assert (
        "'found', which test_it_says_once_what_sets_two_apart.<locals>.made.<locals>.<lambda> closes over, a list, can change"
        in text
    )
    assert text.endswith("reuse one backend object, or say what makes it the same: dynx.compile(..., key=...)")
