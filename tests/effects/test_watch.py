"""What a watch of a program's objects notices, and what it takes for unchanged."""

from __future__ import annotations

import warnings
from collections import OrderedDict, deque
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from dynx.effects._world.watch import Watch


class Holder:
    def __init__(self, value):
        self.value = value


class Slotted:
    __slots__ = ("value",)


def changed(value, change):
    """Return the paths of what a change changes in an object named `holder`."""
    watch = Watch([("holder", value)])
    change()
    return [path for path, _, _ in watch.changed()]


def quantized():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch will remove them
        return torch.quantize_per_tensor(torch.ones(3), 1.0, 0, torch.qint8)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(10.0)[1:],
        torch.ones(5, dtype=torch.half)[1:],
        torch.randn(4, dtype=torch.complex64).conj(),
        torch.randn(4, dtype=torch.complex64).conj().imag,
        torch.ones(3, dtype=torch.bool),
        torch.ones(4, 4).t()[1:],
        torch.tensor(2.0),
        quantized(),
    ],
    ids=["offset", "offset of 16 bits", "conjugate", "negative", "bool", "strided", "scalar", "quantized"],
)
def test_elements_of_a_tensor_are_watched(tensor):
    """By a checksum, as writes through `.data` do not count as versions: torch raises for some views, or crashes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert changed(Holder(tensor), lambda: None) == []
        assert changed(Holder(tensor), lambda: tensor.data.copy_(torch.zeros(tensor.shape))) == ["holder.value"]


def test_a_write_to_a_sparse_tensor_is_noticed():
    tensor = torch.eye(3).to_sparse()
    assert changed(Holder(tensor), lambda: tensor.mul_(2)) == ["holder.value"]


@pytest.mark.parametrize(("before", "after"), [(1000, int("1000")), ("ab" * 3, "".join(["ab"] * 3)), (1.5, float("1.5"))])
def test_an_equal_number_or_text_is_no_change(before, after):
    holder = Holder(before)
    assert before is not after
    assert changed(holder, lambda: setattr(holder, "value", after)) == []


@pytest.mark.parametrize(("before", "after"), [(1, True), (0, 0.0), ([], []), (1, None)])
def test_another_object_is_a_change(before, after):
    holder = Holder(before)
    assert changed(holder, lambda: setattr(holder, "value", after)) == ["holder"]


@pytest.mark.parametrize(
    ("container", "change"),
    [
        ({}, lambda items: items.update(a=1)),
        ({"a": 1}, lambda items: items.update(a=2)),
        (OrderedDict(), lambda items: items.update(a=1)),
        (OrderedDict(), lambda items: setattr(items, "more", 1)),
        ([], lambda items: items.append(1)),
        (set(), lambda items: items.add(1)),
        (deque([1, 2]), lambda items: items.rotate()),
        (SimpleNamespace(), lambda items: setattr(items, "a", 1)),
        (Slotted(), lambda items: setattr(items, "value", 1)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_a_container_holds_is_watched(container, change):
    """Also of an empty one, of which many are in each module."""
    assert changed(Holder(container), lambda: change(container)) == ["holder.value"]


def test_a_path_leads_through_all_containers():
    inner = []
    holder = Holder({"key": (1, [inner])})
    assert changed(holder, lambda: inner.append(1)) == ["holder.value['key'][1][0]"]


def test_class_and_name_of_a_class_are_watched():
    class Local:
        pass

    holder = Holder(1)
    assert changed(holder, lambda: setattr(holder, "__class__", Local)) == ["holder"]
    assert changed(Local, lambda: setattr(Local, "__name__", "Other")) == ["holder"]


def test_objects_with_an_id_to_leave_out_are_not_watched():
    held = []
    watch = Watch([("holder", Holder(held))], ids={id(held)})
    held.append(1)
    assert watch.changed() == []


def test_hooks_and_buffers_of_a_module_are_watched():
    module = nn.BatchNorm1d(3)
    assert changed(module, lambda: module(torch.randn(4, 3))) == [
        "holder._buffers['running_mean']",
        "holder._buffers['running_var']",
        "holder._buffers['num_batches_tracked']",
    ]
    assert changed(module, lambda: module.register_forward_hook(print)) == ["holder._forward_hooks"]
