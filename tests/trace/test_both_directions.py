"""Every recompile reason is correct in both directions: from a first value to a second, and from the second to the first."""

from __future__ import annotations

import enum
from typing import get_args

import pytest
import torch
from flips import FLIPS, Seen
from recompile_causes import CAUSES

import dynx
from dynx.records.recompile import GuardKind


def seen(reason):
    return Seen(reason.kind, reason.source, reason.expected, reason.got)


def reasons_of(*calls):
    """Return the reasons of each recompile."""
    with dynx.watch() as w:
        for call in calls:
            call()
    return [[seen(reason) for reason in recompile.reasons] for recompile in w.recompiles]


def first_reason(before, after):
    """Return the first reason of the recompile at `after`; None if the call runs the entry that `before` compiled."""
    recompiles = reasons_of(before, after)
    return recompiles[0][0] if recompiles else None


@pytest.mark.parametrize("name", FLIPS)
def test_flip_reports_the_expected_and_the_actual_value(name):
    flip = FLIPS[name]()
    assert first_reason(flip.first, flip.second) == flip.there


@pytest.mark.parametrize("name", FLIPS)
def test_flip_in_the_other_direction_reports_the_values_exchanged(name):
    """Swapped values send the user to the call that did not change."""
    flip = FLIPS[name]()
    assert first_reason(flip.second, flip.first) == flip.back


# what the second call of a cause, followed by the first, reports instead of the exchanged values
NOT_EXCHANGED = {
    "the_same_tensor_twice": Seen("alias", '["x", "y"]', "different tensors", "the same tensor"),  # another guard
    "a_branch_on_a_size": Seen("shape", "x.size()[0]", "2 <= x.size()[0] <= 5", "8"),  # each branch has its own condition
    "an_argument_that_is_none": Seen(
        "type", "mask", "<class 'torch.Tensor'>", "<class 'NoneType'>"
    ),  # a tensor has a type guard
}


@pytest.mark.parametrize("name", CAUSES)
def test_cause_of_a_recompile_in_the_other_direction_reports_the_values_exchanged(name):
    cause = CAUSES[name]()
    compiled = torch.compile(cause.function, backend="eager", **cause.options)

    def second():
        with cause.change():
            compiled(*cause.second)

    mirrored = Seen(cause.kind, cause.source, cause.expected, cause.got).mirrored()
    assert first_reason(second, lambda: compiled(*cause.first)) == NOT_EXCHANGED.get(name, mirrored)


class Mode(enum.Enum):
    A = 1
    B = 2
    C = 3


class Helpers:
    def a(self, x):
        return x + 1

    def b(self, x):
        return x + 2

    def c(self, x):
        return x + 3


HELPERS = Helpers()
ONES = torch.ones(2)

# function, three values of `n`, kind and source of the reasons, and the text of each value
THREE_VALUES = {
    "int": (lambda x, n: x * n, (2, 3, 4), "value", "n", ("2", "3", "4")),
    "text": (lambda x, n: x + len(n), ("a", "bb", "ccc"), "value", "n", ("'a'", "'bb'", "'ccc'")),
    "long text": (
        lambda x, n: x + len(n),
        ("a" * 90, "b" * 91, "c" * 92),
        "value",
        "n",
        tuple("'" + letter * 78 + "…" for letter in "abc"),
    ),
    "dtype": (
        lambda x, n: x.to(n),
        (torch.half, torch.double, torch.int32),
        "value",
        "n",
        ("torch.float16", "torch.float64", "torch.int32"),
    ),
    "length": (lambda x, n: x + sum(n), ([1], [1, 0], [1, 0, 0]), "length", "n", ("1", "2", "3")),
    "order of keys": (
        lambda x, n: x + next(iter(n)),
        ({1: 0, 2: 0, 3: 0}, {2: 0, 1: 0, 3: 0}, {3: 0, 1: 0, 2: 0}),
        "keys",
        "n",
        ("1, 2, 3", "2, 1, 3", "3, 1, 2"),
    ),
    "type": (
        lambda x, n: x + len(n),
        ([1], (1,), torch.Size([1])),
        "type",
        "n",
        ("<class 'list'>", "<class 'tuple'>", "<class 'torch.Size'>"),
    ),
    "set": (lambda x, n: x + sum(n), ({1, 2}, {1, 3}, {1, 4}), "value", "n", ("{1, 2}", "{1, 3}", "{1, 4}")),
    "enum": (lambda x, n: x + 1 if n is Mode.A else x - 1, tuple(Mode), "object", "n", ("Mode.A", "Mode.B", "Mode.C")),
    "method": (
        lambda x, n: n(x),
        (HELPERS.a, HELPERS.b, HELPERS.c),
        "function",
        "n.__func__",
        ("Helpers.a", "Helpers.b", "Helpers.c"),
    ),
    "size": (lambda x, n: x * n.sum(), tuple(map(torch.ones, (3, 4, 5))), "size", "n.size()[0]", ("3", "4", "5")),
    "rank": (lambda x, n: x * n.sum(), (ONES, ONES[None], ONES[None, None]), "rank", "n", ("1", "2", "3")),
    "dtype of a tensor": (
        lambda x, n: x * n,
        (torch.ones(2), ONES.half(), ONES.double()),
        "dtype",
        "n",
        ("Float", "Half", "Double"),
    ),
}


@pytest.mark.parametrize("name", THREE_VALUES)
def test_third_value_after_a_return_to_the_first_is_compared_with_the_entry_of_each_value(name):
    """Values of an older entry must not appear in the reason of another entry."""
    function, values, kind, source, texts = THREE_VALUES[name]
    compiled = torch.compile(function, backend="eager", dynamic=False)
    a, b, c = texts
    recompiles = reasons_of(*(lambda n=n: compiled(ONES, n) for n in (values[0], values[1], values[0], values[2])))
    assert [sorted(reasons) for reasons in recompiles] == [
        [Seen(kind, source, a, b)],
        sorted([Seen(kind, source, a, c), Seen(kind, source, b, c)]),
    ]


@pytest.mark.gpu(devices=2)
def test_device_of_a_tensor_is_reported_in_both_directions():
    compiled = torch.compile(lambda x: x + 1, backend="eager")
    first, second = ((lambda device=device: compiled(torch.ones(2, device=device))) for device in ("cuda:0", "cuda:1"))
    there = Seen("device", "x", "index 0", "index 1")
    assert first_reason(first, second) == there
    torch._dynamo.reset()
    assert first_reason(second, first) == there.mirrored()


NEEDS_TWO_DEVICES = {"device"}


def test_every_guard_kind_is_flipped():
    flipped = {FLIPS[name]().there.kind for name in FLIPS} | {create().kind for create in CAUSES.values()}
    of_ranks = {"held"}  # no guard fails: the page of DX122 has a program
    assert set(get_args(GuardKind)) == flipped | NEEDS_TWO_DEVICES | of_ranks
