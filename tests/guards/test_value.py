"""Which backends dynx.compile treats as equal: equal keys let them share compiled code."""

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
from dynx.errors import DynxWarning, UsageError
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


class PartialSubclass(functools.partial):
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


class WithClassAttribute:
    level = 1

    def __call__(self, gm, inputs):
        return gm.forward


class StoresItsMethod:
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
    "lambda that calls eval() of the module": lambda: lambda gm, inputs: gm.eval().forward,
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
    "instance that stores its method": StoresItsMethod,
    "namedtuple": lambda: closing_over(Named(1)),
    "attribute of a function": lambda: with_attribute(1),
    "slots": lambda: WithSlots(1),
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
    "subclass of partial": lambda n: PartialSubclass(backend, level=n),
    "slots": lambda n: WithSlots(n),
    "dtype": lambda n: closing_over((torch.float32, torch.float64)[n]),
}
BY_IDENTITY = {
    "closure over a list": lambda: closing_over([]),
    "closure over a tensor": lambda: closing_over(torch.ones(1)),
    "option that may be filled": lambda: functools.partial(backend, results={}),
    "list": lambda: functools.partial(backend, results=[1]),
    "instance that counts": lambda: Counts(0),
    "instance that holds a list": lambda: Options([1]),
    "static method": lambda: Static(),
    "instance that sets": lambda: Sets(1),
    "subclass of partial": lambda: PartialSubclass(backend, level=1),
    "function that counts": counting,
    "function that counts globally": counting_globally,
    "unhashable": lambda: types.SimpleNamespace(a=1),
}


@pytest.mark.parametrize("name", SAME)
def test_equal_backends_have_equal_keys(name):
    first, second = (value_of(SAME[name]()) for _ in range(2))
    assert first.key == second.key
    assert hash(first.key) == hash(second.key)
    assert first.by_identity == ()


@pytest.mark.parametrize("name", DIFFERENT)
def test_different_backends_have_different_keys(name):
    assert value_of(DIFFERENT[name](0)).key != value_of(DIFFERENT[name](1)).key


@pytest.mark.parametrize("name", BY_IDENTITY)
def test_mutable_backends_are_compared_by_identity(name):
    """Two mutable backends that are equal now may compile differently later."""
    first, second = BY_IDENTITY[name](), BY_IDENTITY[name]()
    assert value_of(first).key == value_of(first).key
    assert value_of(first).key != value_of(second).key
    assert value_of(first).likeness == value_of(second).likeness
    assert value_of(first).by_identity


@pytest.mark.parametrize("create", [lambda: calls_reader, lambda: lambda gm, inputs: calls_reader(gm, inputs)])
@pytest.mark.parametrize(("module", "name", "value"), [(None, "LEVEL", 2), (math, "pi", 4.0), (None, "backend", print)])
def test_cache_key_of_a_backend_changes_with_globals_that_its_functions_read(monkeypatch, create, module, name, value):
    before = value_of(create()).key
    assert value_of(create()).key == before
    if module is None:
        monkeypatch.setitem(globals(), name, value)
    else:
        monkeypatch.setattr(module, name, value)
    assert value_of(create()).key != before


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.slow
@given(PLAIN, PLAIN)
def test_backend_keys_are_equal_if_reprs_of_captured_plain_values_are_equal(first, second):
    def text_of(value):
        if isinstance(value, frozenset):
            return f"set {sorted(map(text_of, value))}"
        return f"tuple {[text_of(item) for item in value]}" if isinstance(value, tuple) else repr(value)

    is_equal = value_of(closing_over(first)).key == value_of(closing_over(second)).key
    assert is_equal == (text_of(first) == text_of(second))


def test_cache_key_of_a_backend_changes_with_attributes_of_its_class(monkeypatch):
    before = value_of(WithClassAttribute()).key
    assert value_of(WithClassAttribute()).key == before
    monkeypatch.setattr(WithClassAttribute, "level", 2)
    assert value_of(WithClassAttribute()).key != before


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
    "create",
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
def test_recursive_and_unusual_callables_have_a_stable_backend_key(create):
    unusual = create()
    assert value_of(unusual).key == value_of(unusual).key


def test_backend_key_does_not_keep_the_backend_alive():
    options = Options([1])
    key = value_of(options).key
    reference = weakref.ref(options)
    del options
    gc.collect()
    assert reference() is None
    assert key != value_of(Options([1])).key


def test_computing_a_backend_key_calls_no_user_code():
    class Loud:
        def __getattribute__(self, name):
            if not name.startswith("__"):
                raise AssertionError(name)
            return object.__getattribute__(self, name)

        def __repr__(self):
            raise AssertionError

    value_of(closing_over(Loud()))


def test_keyed_returns_one_object_for_equal_backends():
    first = keyed(functools.partial(backend, level=5))
    assert keyed(functools.partial(backend, level=5)) is first
    assert keyed(functools.partial(backend, level=6)) is not first
    assert keyed(first) is first
    assert keyed("eager") == "eager"
    assert repr(first) == "<keyed backend partial>"


def test_keyed_raises_for_invalid_backends_and_unhashable_keys():
    for value in (None, 3, [backend]):
        with pytest.raises(UsageError, match="is not a backend\n  pass a name, or a callable"):
            keyed(value)
    with pytest.raises(UsageError, match=r"key=\{\} is not hashable: a dict"):
        keyed(backend, key={})


def test_keyed_does_not_return_a_backend_that_was_mutated():
    changed = Options(1)
    first = keyed(changed)
    changed.level = 2
    assert keyed(Options(1)) is not first


def test_keyed_does_not_return_a_backend_that_compiled_while_mutated():
    changed = Options(7)
    first = keyed(changed)
    changed.level = 2
    torch.compile(torch.sin, backend=first)(torch.zeros(1))
    changed.level = 7
    assert keyed(Options(7)) is not first


def test_torch_compile_reuses_code_of_a_keyed_backend(count_compiles):
    for _ in range(5):
        torch.compile(lambda x: x + 1, backend=keyed(lambda gm, inputs: count_compiles(gm, inputs)))
    functions = [torch.compile(torch.sin, backend=keyed(functools.partial(count_compiles))) for _ in range(5)]
    assert [f(torch.zeros(1)).item() for f in functions] == [0.0] * 5
    assert count_compiles.count == 1


def test_keyed_compares_backends_by_an_explicit_key_alone():
    first, second = keyed(closing_over([1]), key="a"), keyed(closing_over([2]), key="a")
    assert first is second
    assert keyed(closing_over([1]), key="b") is not first


def test_warning_names_why_two_backends_differ():
    def collecting(graphs):
        return lambda gm, inputs: graphs.append(gm) or gm.forward

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kept = [dynx.compile(torch.sin, backend=collecting([])) for _ in range(4)]
    assert len(kept) == 4
    assert [(warning.category, warning.filename) for warning in caught] == [(DynxWarning, __file__)]
    text = str(caught[0].message)
    assert (
        "'graphs', which test_warning_names_why_two_backends_differ.<locals>.collecting.<locals>.<lambda> closes over,"
        " a list, can change" in text
    )
    assert text.endswith("reuse one backend object, or pass the same key for equal backends: dynx.compile(..., key=...)")
