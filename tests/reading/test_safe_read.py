"""Reading values by the source of a guard, such as `self.step`, without running the user's code."""

from __future__ import annotations

import itertools
import warnings
from collections import UserDict, deque
from types import MappingProxyType

import pytest
import torch

from dynx._bytecode import safe_read


class Trap:
    """A value whose special methods and properties all raise."""

    def __init__(self):
        self.plain = 3

    def __getattr__(self, name):
        raise AssertionError(f"__getattr__ was called for {name}")

    @property
    def prop(self):
        raise AssertionError("a property was read")

    def __repr__(self):
        raise AssertionError("__repr__ was called")

    def method(self, default=8):
        pass

    def __eq__(self, other):
        raise AssertionError("__eq__ was called")

    __hash__ = None

    def __len__(self):
        raise AssertionError("__len__ was called")


class OverriddenList(list):
    def __len__(self):
        raise AssertionError("__len__ was called")

    def __getitem__(self, index):
        raise AssertionError("__getitem__ was called")


class TrapDict(dict):
    def __getitem__(self, key):
        raise AssertionError("__getitem__ was called")


class TrapMapping(UserDict):
    def __getitem__(self, key):
        raise AssertionError("__getitem__ was called")


class Base:
    base = 7


class Slots(Base):
    __slots__ = ("empty", "v")
    step = 6

    def __init__(self):
        self.v = 5


class Number(float):
    def __repr__(self):
        raise AssertionError("__repr__ was called")


MODULE = torch.nn.Sequential(torch.nn.Linear(2, 2))
MODULE.step = 7
LOCALS = {
    "self": MODULE,
    "t": Trap(),
    "l": OverriddenList([1, 2]),
    "d": {"a": {"b": 5}},
    "n": "x" * 100,
    "f": len,
    "none": None,
    "slot": Slots(),
    "proxy": MappingProxyType(TrapDict(a=1)),
    "proxied_trap": MappingProxyType(TrapMapping(a=1)),
    "method": Trap.method.__get__(object()),
    "queue": deque([9]),
    "plain": [1, (2, "a")],
    "mixed": [1, Trap()],
    "number": Number(4),
    "range": iter(range(3)),
    "count": itertools.count(2),
    "count_from_trap": itertools.count(Number(1)),
    "p": torch.nn.Parameter(torch.ones(1)),
}
GLOBALS = {"STEP": 4, "torch": torch}


READ = [
    ("self.step", "7"),
    ("L['self'].step", "7"),
    ("self._modules['0'].in_features", "2"),
    ("self.training", "True"),
    ("d['a']['b']", "5"),
    ("l[1]", "2"),
    ("G['STEP']", "4"),
    ("G['torch'].float32", "torch.float32"),
    ("G['torch']", "module torch"),
    ("slot.v", "5"),
    ("slot.empty", None),
    ("type(slot).step", "6"),
    ("dict(type(slot).__dict__)['step']", "6"),
    ("dict(type(slot).__mro__[1].__dict__)['base']", "7"),
    ("proxy['a']", "1"),
    ("proxied_trap['a']", None),
    ("method.__func__", "Trap.method"),
    ("method.__func__.__code__", "Trap.method"),
    ("method.__func__.__defaults__[0]", "8"),
    ("queue[0]", "9"),
    ("d[list(dict.keys(d))[0]]['b']", "5"),
    ("plain", "[1, (2, 'a')]"),
    ("mixed", "a list"),
    ("number", "4.0"),
    ("range", "iterator of range(0, 3)"),
    ("count", "count(2, 1)"),
    ("count_from_trap", "a count"),
    ("p.grad", "None"),
    ("t", "a Trap"),
    ("t.plain", "3"),
    ("f", "len"),
    ("none", "None"),
    ("n", "'" + "x" * 78 + "…"),
    ("t.prop", None),
    ("t.gone", None),
    ("gone", None),
    ("l[9]", None),
    ("d['zz']", None),
    ("t()", None),
    ("self.step + 1", None),
    ("not python (", None),
    ("(" * 500, None),
]


@pytest.mark.parametrize(("source", "text"), READ)
def test_guard_source_is_evaluated_without_running_user_code(source, text):
    assert safe_read.describe(source, LOCALS, GLOBALS) == text


def test_many_sources_read_together_have_the_values_of_single_reads():
    odd = [
        "plain[1][0]",
        "plain[-1]",
        "d[plain[0]]",
        "d['it[0]']",
        """d["x['b']"]""",
        "-plain[0]",
        "plain + d.a",
        "1.5",
        "G",
        "L",
    ]
    known = {}
    for source in [*(source for source, _ in READ), *odd]:
        single = safe_read.resolve(source, LOCALS, GLOBALS)
        together = safe_read.resolve_once(source, LOCALS, GLOBALS, known)
        assert together is single or safe_read.text_of(together) == safe_read.text_of(single), source


def test_length_of_a_guarded_list_ignores_an_overridden_len():
    assert safe_read.length("l", LOCALS, GLOBALS) == "2"
    assert safe_read.length("t", LOCALS, GLOBALS) is None


OPTIMIZER = torch.optim.SGD(MODULE.parameters(), lr=0.1)


@pytest.mark.parametrize(
    ("source", "holder"),
    [
        ("x", "argument"),
        ("self.step", "module"),
        ("self._modules['0'].in_features", "module"),
        ("t.plain", "object"),
        ("d['a']", "object"),
        ("G['STEP']", "global"),
        ("G['torch'].version", "global"),
        ("opt.param_groups[0]['lr']", "optimizer"),
        ("len(x) (", "object"),
    ],
)
def test_guard_source_is_classified_by_the_kind_of_object_that_holds_the_value(source, holder):
    assert safe_read.holder(source, {**LOCALS, "opt": OPTIMIZER}, GLOBALS) == holder


def test_size_stride_and_offset_are_read_from_plain_tensors_only():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "Sparse CSR tensor support is in beta state"
        values = {"x": torch.ones(2, 3), "t": Trap(), "sparse": torch.ones(2, 2).to_sparse_csr(), "n": 4}
    assert [safe_read.dimension(f"x.{kind}()[0]", values, {}) for kind in ("size", "stride")] == ["2", "3"]
    assert safe_read.dimension("y.storage_offset()", {"y": values["x"][1]}, {}) == "3"
    assert safe_read.dimension("n", values, {}) == "4"
    for source in ("x.size()[2]", "t.size()[0]", "sparse.stride()[0]", "t.size()", "t.storage_offset()"):
        assert safe_read.dimension(source, values, {}) is None


def test_shape_is_read_from_plain_tensors_only():
    class Subclass(torch.Tensor):
        pass

    assert safe_read.shape_of(torch.ones(2, 3)) == (2, 3)
    assert safe_read.shape_of(torch.ones(2).as_subclass(Subclass)) is None
    assert safe_read.shape_of(3) is None


class OfClass:
    number = 3

    @staticmethod
    def static():
        """Is the same object in each access."""

    @classmethod
    def bound(cls):
        """Is another object in each access."""


def test_methods_of_a_class_are_read_as_python_reads_them():
    names = {"OfClass": OfClass}
    assert safe_read.resolve("OfClass.static", names, {}) is OfClass.static
    assert safe_read.resolve("OfClass.number", names, {}) == 3
    assert safe_read.resolve("OfClass.bound", names, {}) is safe_read.UNKNOWN
    own = safe_read.resolve("dict(OfClass.__dict__)['static']", names, {})
    assert type(own) is staticmethod
