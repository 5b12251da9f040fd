"""Modules that a function uses are found, whatever way it reaches them by, and other ones under the same name are noticed."""

from __future__ import annotations

import collections
import copy
import functools
import types
import weakref

import pytest
import torch
from cudagraphs_runtimes import RUNTIMES
from torch import nn

from dynx import cudagraphs
from dynx.errors import UsageError


def config(device):
    return cudagraphs.Config(runtime=RUNTIMES[device])


def linear(device):
    torch.manual_seed(0)
    return nn.Linear(3, 3).to(device)


others = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 1)])
first, second = others


def in_a_generator(*xs):
    return second(sum(first(x) for x in xs))


def wrapped(function):
    @functools.wraps(function)
    def call(*args):
        return second(function(*args))

    return call


@wrapped
def inner(x):
    return first(x)


class Owner(nn.Module):
    def forward(self, x):
        return x

    def method(self, x):
        return second(first(x))


class Trainer:
    """Has modules in ordinary attributes."""

    def __init__(self):
        self.first, self.more, self.named = first, [second], {"second": second}

    @property
    def last(self):
        return self.more[0]

    def method(self, x):
        return self.named["second"](self.first(x))

    def helps(self, x):
        return self.method(x)

    def by_property(self, x):
        return self.last(self.first(x))

    def optional(self, x):
        y = self.first(x)
        for each in self.more or ():
            y = each(y)
        return y

    def __call__(self, x):
        return self.method(x)


class Wrapped(Trainer):
    kept = second

    @torch.no_grad()
    def decorated(self, x):
        return second(self.first(x))

    def method(self, x):
        return super().method(x)

    def by_class(self, x):
        return self.kept(self.first(x))


class Slotted:
    __slots__ = ("layer",)

    def __init__(self, layer):
        self.layer = layer


class Looking:
    """Looks up attributes in its own way."""

    def __init__(self):
        self.parts = {"first": first, "second": second}

    def __getattr__(self, name):
        return self.__dict__["parts"][name]

    def __call__(self, x):
        return self.second(self.first(x))


def applied(owner, x):
    return owner.method(x)


@functools.cache
def cached():
    return [second]


slotted, weak, ordered = Slotted(second), weakref.ref(second), collections.OrderedDict(last=second)
trainer, both = Trainer(), [first, second]
holder = types.SimpleNamespace(owner=trainer)
WAYS = {
    "an attribute": trainer.method,
    "another method": trainer.helps,
    "a property": trainer.by_property,
    "an object": trainer,
    "an object in a variable": lambda x: trainer.method(x),
    "an attribute of an attribute": lambda x: holder.owner.first(x) @ second.weight.T + second.bias,
    "a function that is used": lambda x: applied(trainer, x),
    "a decorated method": Wrapped().decorated,
    "a method of what a class is made from": Wrapped().method,
    "an attribute of a class": Wrapped().by_class,
    "a slot": lambda x: slotted.layer(first(x)),
    "a default": lambda x, last=second: last(first(x)),
    "a weak reference": lambda x: weak()(first(x)),
    "an ordered dict": lambda x: ordered["last"](first(x)),
    "an object that looks up attributes itself": Looking(),
    "a list": lambda x: both[1](both[0](x)),
    "a generator": in_a_generator,
    "a wrapper": inner,
    "a method": Owner().method,
    "a partial": functools.partial(lambda one, other, x: other(one(x)), first, second),
}


@pytest.fixture
def moved(device):
    before = copy.deepcopy(others.state_dict())
    others.to(device)
    yield
    others.to("cpu")
    others.load_state_dict(before)


@pytest.mark.parametrize("name", WAYS)
def test_modules_are_found(device, moved, name):
    x = torch.ones(2, 3, device=device)
    run = cudagraphs.fast_path(WAYS[name], x, config=config(device))
    before = first.weight
    try:
        for scale in (1, 0):
            first.weight = nn.Parameter(torch.full_like(before, scale))
            for _ in range(3):
                torch.testing.assert_close(run(x), WAYS[name](x).detach())
    finally:
        first.weight = before


@pytest.mark.parametrize("name", [each for each in WAYS if each != "a decorated method"])
def test_modules_that_are_found_get_gradients(device, moved, name):
    x = torch.ones(2, 3, device=device)
    run = cudagraphs.graphed(WAYS[name], (x,), config=config(device))
    others.zero_grad()
    run(x).sum().backward()
    mine = first.weight.grad.clone()
    others.zero_grad()
    WAYS[name](x).sum().backward()
    torch.testing.assert_close(mine, first.weight.grad)
    others.zero_grad()


@pytest.mark.uncaptured
def test_modules_that_are_not_found_are_refused(device):
    known, hidden = linear(device), types.SimpleNamespace(layer=linear(device))
    with pytest.raises(UsageError, match=r"a tensor of size \(3, 3\) needs gradients, and is no argument and no parameter"):
        cudagraphs.graphed(
            lambda x: known(getattr(hidden, "lay" + "er")(x)), (torch.ones(2, 3, device=device),), config=config(device)
        )


def nothing(owner, value):
    owner.more = None


NAMES = {
    "nothing": ("optional", nothing),
    "other keys": ("method", lambda owner, value: owner.named.update(second=value, first=second)),
    "an attribute": ("method", lambda owner, value: setattr(owner, "first", value)),
    "an element": ("by_property", lambda owner, value: owner.more.__setitem__(0, value)),
    "a value": ("method", lambda owner, value: owner.named.update(second=value)),
}


@pytest.mark.parametrize("name", NAMES)
def test_other_modules_under_the_same_name(device, moved, name):
    owner = Trainer()
    method, bind = NAMES[name]
    function = getattr(owner, method)
    run, x = cudagraphs.fast_path(function, config=config(device)), torch.ones(2, 3, device=device)
    for _ in range(3):
        run(x)
    bind(owner, linear(device))
    for _ in range(3):
        torch.testing.assert_close(run(x), function(x).detach())


def test_a_name_that_stands_for_another_module_that_is_known(device):
    """The recordings are for other modules then, although all of them were there before."""
    owner = types.SimpleNamespace(layers=[linear(device), nn.Linear(3, 3).to(device)], which=None)
    owner.which = owner.layers[0]

    def function(x):
        return owner.which(x) - sum(each(x) for each in owner.layers) / 2

    run, x = cudagraphs.fast_path(function, config=config(device)), torch.ones(2, 3, device=device)
    for index in (0, 0, 0, 1, 1, 1, 0, 1):
        owner.which = owner.layers[index]
        torch.testing.assert_close(run(x), function(x).detach())
    assert cudagraphs.stats().recordings == 2


class Sample:
    def __init__(self, number):
        self.number = number


def test_data_beside_modules_is_left_alone(device):
    """Chains of objects, recursive lists, dead proxies, and much data: none of them is gone through, or fails."""
    owner = types.SimpleNamespace(layer=linear(device), data=[Sample(number) for number in range(20_000)], before=None)
    for _ in range(3_000):
        owner.before = types.SimpleNamespace(before=owner.before)
    owner.data.append(owner.data)
    owner.gone = weakref.proxy(Sample(0))

    def function(x):
        try:
            owner.gone.number, owner.before, owner.data[0].number
        except ReferenceError:
            return owner.layer(x)

    run, x = cudagraphs.fast_path(function, config=config(device)), torch.ones(2, 3, device=device)
    for _ in range(3):
        torch.testing.assert_close(run(x), function(x).detach())
    assert cudagraphs.stats().replays == 2
