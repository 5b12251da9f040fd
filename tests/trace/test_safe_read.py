"""Reading values by the source of a guard, such as `self.step`, without running the user's code."""

from __future__ import annotations

import pytest
import torch

from dynx._trace import safe_read


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
    "device": torch.device("meta"),
    "layout": torch.strided,
}
GLOBALS = {"STEP": 4, "torch": torch}


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("self.step", "7"),
        ("L['self'].step", "7"),
        ("self._modules['0'].in_features", "2"),
        ("self.training", "True"),
        ("d['a']['b']", "5"),
        ("l[1]", "2"),
        ("G['STEP']", "4"),
        ("G['torch'].float32", "torch.float32"),
        ("t", "a Trap"),
        ("t.plain", "3"),
        ("f", "len"),
        ("none", "None"),
        ("device", "device(type='meta')"),
        ("layout", "torch.strided"),
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
    ],
)
def test_guard_source_is_evaluated_without_running_user_code(source, text):
    assert safe_read.describe(source, LOCALS, GLOBALS) == text


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


def test_shape_is_read_from_plain_tensors_only():
    class Subclass(torch.Tensor):
        pass

    assert safe_read.shape_of(torch.ones(2, 3)) == (2, 3)
    assert safe_read.shape_of(torch.ones(2).as_subclass(Subclass)) is None
    assert safe_read.shape_of(3) is None
