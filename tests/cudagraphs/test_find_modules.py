"""Modules that a function uses are found in variables, attributes and containers; rebinding one triggers a recapture."""

from __future__ import annotations

import collections
import copy
import functools
import types
import weakref

import pytest
import torch
from support.configs import config_for
from support.models import linear
from torch import nn

from dynx import cudagraphs
from dynx.errors import UsageError

layers = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 1)])
first, second = layers


def generator_expression(*xs):
    return second(sum(first(x) for x in xs))


def calls_second(function):
    @functools.wraps(function)
    def call(*args):
        return second(function(*args))

    return call


@calls_second
def inner(x):
    return first(x)


class WithMethod(nn.Module):
    def forward(self, x):
        return x

    def method(self, x):
        return second(first(x))


class Trainer:
    """An ordinary object with modules in attributes."""

    def __init__(self):
        self.first, self.more, self.named = first, [second], {"second": second}

    @property
    def last(self):
        return self.more[0]

    def method(self, x):
        return self.named["second"](self.first(x))

    def calls_method(self, x):
        return self.method(x)

    def through_property(self, x):
        return self.last(self.first(x))

    def optional(self, x):
        y = self.first(x)
        for layer in self.more or ():
            y = layer(y)
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

    def through_class(self, x):
        return self.kept(self.first(x))


class Slotted:
    __slots__ = ("layer",)

    def __init__(self, layer):
        self.layer = layer


class CustomGetattr:
    """Finds its modules in `__getattr__`."""

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
ACCESSES = {
    "an attribute": trainer.method,
    "another method": trainer.calls_method,
    "a property": trainer.through_property,
    "an object": trainer,
    "an object in a variable": lambda x: trainer.method(x),
    "an attribute of an attribute": lambda x: holder.owner.first(x) @ second.weight.T + second.bias,
    "a function that it calls": lambda x: applied(trainer, x),
    "a decorated method": Wrapped().decorated,
    "an inherited method": Wrapped().method,
    "an attribute of a class": Wrapped().through_class,
    "a slot": lambda x: slotted.layer(first(x)),
    "a default": lambda x, last=second: last(first(x)),
    "a weak reference": lambda x: weak()(first(x)),
    "an ordered dict": lambda x: ordered["last"](first(x)),
    "a custom __getattr__": CustomGetattr(),
    "a list": lambda x: both[1](both[0](x)),
    "a generator": generator_expression,
    "a functools.wraps wrapper": inner,
    "a method": WithMethod().method,
    "a partial": functools.partial(lambda inner, outer, x: outer(inner(x)), first, second),
}


@pytest.fixture
def on_device(device):
    before = copy.deepcopy(layers.state_dict())
    layers.to(device)
    yield
    layers.to("cpu")
    layers.load_state_dict(before)


@pytest.mark.parametrize("name", ACCESSES)
def test_fast_path_uses_replaced_parameters_however_it_reaches_the_module(device, on_device, name):
    x = torch.ones(2, 3, device=device)
    run = cudagraphs.fast_path(ACCESSES[name], x, config=config_for(device))
    before = first.weight
    try:
        for scale in (1, 0):
            first.weight = nn.Parameter(torch.full_like(before, scale))
            for _ in range(3):
                torch.testing.assert_close(run(x), ACCESSES[name](x).detach())
    finally:
        first.weight = before


@pytest.mark.parametrize("name", [name for name in ACCESSES if name != "a decorated method"])
def test_graphed_sets_parameter_gradients_however_it_reaches_the_module(device, on_device, name):
    x = torch.ones(2, 3, device=device)
    run = cudagraphs.graphed(ACCESSES[name], (x,), config=config_for(device))
    layers.zero_grad()
    run(x).sum().backward()
    grad = first.weight.grad.clone()
    layers.zero_grad()
    ACCESSES[name](x).sum().backward()
    torch.testing.assert_close(grad, first.weight.grad)
    layers.zero_grad()


@pytest.mark.uncaptured
def test_graphed_raises_for_parameters_of_modules_that_it_cannot_find(device):
    visible, hidden = linear(device), types.SimpleNamespace(layer=linear(device))
    with pytest.raises(
        UsageError, match=r"a tensor of size \(3, 3\) requires grad, but is neither an argument nor a parameter"
    ):
        cudagraphs.graphed(
            lambda x: visible(getattr(hidden, "".join(("lay", "er")))(x)),
            (torch.ones(2, 3, device=device),),
            config=config_for(device),
        )


def set_to_none(owner, value):
    owner.more = None


REBINDINGS = {
    "an attribute set to None": ("optional", set_to_none),
    "added dict keys": ("method", lambda owner, value: owner.named.update(second=value, first=second)),
    "an attribute": ("method", lambda owner, value: setattr(owner, "first", value)),
    "a list element": ("through_property", lambda owner, value: owner.more.__setitem__(0, value)),
    "a dict value": ("method", lambda owner, value: owner.named.update(second=value)),
}


@pytest.mark.parametrize("name", REBINDINGS)
def test_rebinding_a_module_reference_triggers_a_recapture(device, on_device, name):
    owner = Trainer()
    method, rebind = REBINDINGS[name]
    function = getattr(owner, method)
    run, x = cudagraphs.fast_path(function, config=config_for(device)), torch.ones(2, 3, device=device)
    for _ in range(3):
        run(x)
    rebind(owner, linear(device))
    for _ in range(3):
        torch.testing.assert_close(run(x), function(x).detach())


def test_attribute_that_alternates_between_two_modules_gets_a_recording_for_each(device):
    """Both modules are found in the first call, so only the attribute says which module a recording calls."""
    owner = types.SimpleNamespace(layers=[linear(device), nn.Linear(3, 3).to(device)], which=None)
    owner.which = owner.layers[0]

    def function(x):
        return owner.which(x) - sum(layer(x) for layer in owner.layers) / 2

    run, x = cudagraphs.fast_path(function, config=config_for(device)), torch.ones(2, 3, device=device)
    for index in (0, 0, 0, 1, 1, 1, 0, 1):
        owner.which = owner.layers[index]
        torch.testing.assert_close(run(x), function(x).detach())
    assert cudagraphs.stats().recordings == 2


class Datum:
    def __init__(self, number):
        self.number = number


@pytest.mark.slow
def test_search_for_modules_skips_large_and_recursive_data(device):
    """Long attribute chains, recursive lists, dead weak proxies and large lists do not raise."""
    owner = types.SimpleNamespace(layer=linear(device), data=[Datum(number) for number in range(20_000)], before=None)
    for _ in range(3_000):
        owner.before = types.SimpleNamespace(before=owner.before)
    owner.data.append(owner.data)
    owner.gone = weakref.proxy(Datum(0))

    def function(x):
        try:
            owner.gone.number, owner.before, owner.data[0].number
        except ReferenceError:
            return owner.layer(x)

    run, x = cudagraphs.fast_path(function, config=config_for(device)), torch.ones(2, 3, device=device)
    for _ in range(3):
        torch.testing.assert_close(run(x), function(x).detach())
    assert cudagraphs.stats().replays == 2
