"""Attributes of objects, classes, functions and modules."""

from __future__ import annotations

import contextlib
import dataclasses
import types
from collections import OrderedDict

import torch
from support.restoring import attribute, removed, setting

from flips.base import argument, calls, changing, flip, has_guard, ones

TENSOR_OR_NONE = "torch guards a tensor by its type first, and an absent one by None"


def scaled(x, n):
    return x * n.v


class Slots:
    __slots__ = ("v",)

    def __init__(self, v):
        self.v = v


class Property:
    def __init__(self, v):
        self.hidden = v

    @property
    def v(self):
        return self.hidden


@dataclasses.dataclass(frozen=True)
class Frozen:
    v: int


class First:
    v = 1


class Derived(First):
    pass


class Module(torch.nn.Module):
    def forward(self, x):
        return x + 1 if hasattr(self, "v") else x - 1


def plain(v):
    return types.SimpleNamespace(v=v)


argument("an attribute", scaled, (plain(1), plain(2)), ("value", "n.v", "1", "2"))
argument("a slot", scaled, (Slots(1), Slots(2)), ("value", "n.v", "1", "2"))
argument("an attribute behind a property", scaled, (Property(1), Property(2)), ("value", "n.hidden", "1", "2"))
argument("a field of a frozen dataclass", scaled, (Frozen(1), Frozen(2)), ("value", "n.v", "1", "2"))
argument(
    "the class of an object",
    scaled,
    (Property(1), Frozen(1)),
    ("type", "n", f"<class '{__name__}.Property'>", f"<class '{__name__}.Frozen'>"),
)


@contextlib.contextmanager
def added(owner, name, value):
    """Set an attribute that does not exist, and delete it."""
    setattr(owner, name, value)
    try:
        yield
    finally:
        delattr(owner, name)


FIRST, DERIVED = First(), Derived()
changing(
    "an attribute of a class",
    lambda x: x * FIRST.v,
    lambda: attribute(First, "v", 2),
    ("value", "dict(type(G['FIRST']).__dict__)['v']", "1", "2"),
)
changing(
    "an attribute of a base class",
    lambda x: x * DERIVED.v,
    lambda: attribute(First, "v", 2),
    ("value", "dict(type(G['DERIVED']).__mro__[1].__dict__)['v']", "1", "2"),
)
changing(
    "an attribute that hides that of the class",
    lambda x: x * FIRST.v,
    lambda: added(FIRST, "v", 2),
    ("attribute", "G['FIRST'].v", "absent", "present"),
    ("value", "G['FIRST'].v", "2", "1"),
    "without the attribute, the value is that of the class",
)


@flip
def an_attribute_with_a_default():
    holder = Property(1)
    return calls(
        lambda x: x * getattr(holder, "scale", 1),
        (ones(3),),
        (ones(3),),
        ("attribute", "holder.scale", "absent", "present"),
        change=lambda: added(holder, "scale", 2),
    )


@flip
def an_attribute_that_hasattr_looks_for():
    holder = Property(1)
    return calls(
        lambda x: x + 1 if hasattr(holder, "scale") else x - 1,
        (ones(3),),
        (ones(3),),
        ("attribute", "holder.scale", "absent", "present"),
        change=lambda: added(holder, "scale", 2),
    )


@flip
def a_deleted_attribute():
    holder = plain(1)
    return calls(
        lambda x: x * getattr(holder, "v", 3),
        (ones(3),),
        (ones(3),),
        ("attribute", "holder.v", "present", "absent"),
        change=lambda: removed(holder, "v"),
    )


@flip
def an_attribute_of_a_module():
    module = Module()
    return calls(
        module,
        (ones(3),),
        (ones(3),),
        ("attribute", "self.v", "absent", "present"),
        change=lambda: added(module, "v", 2),
    )


if has_guard("CONSTANT_SUBCLASS_MATCH"):  # torch 2.11 does not guard defaults

    @flip
    def a_default_of_a_called_function():
        def helper(x, by=2):
            return x * by

        return calls(
            lambda x: helper(x),
            (ones(3),),
            (ones(3),),
            ("value", "helper.__defaults__[0]", "2", "3"),
            change=lambda: attribute(helper, "__defaults__", (3,)),
        )


@flip
def a_keyword_default_of_a_called_function():
    def helper(x, *, by=2):
        return x * by

    return calls(
        lambda x: helper(x),
        (ones(3),),
        (ones(3),),
        ("value", "helper.__kwdefaults__['by']", "2", "3"),
        change=lambda: attribute(helper, "__kwdefaults__", {"by": 3}),
    )


@flip
def the_code_of_a_called_function():
    def helper(x):
        return x * 2

    def other(x):
        return x * 3

    name = f"{the_code_of_a_called_function.__qualname__}.<locals>.helper"
    return calls(
        lambda x: helper(x),
        (ones(3),),
        (ones(3),),
        ("function", "helper", name, f"another {name}"),
        ("function", "helper", name, f"another {name}"),
        "both objects have the same description",
        lambda: attribute(helper, "__code__", other.__code__),
    )


@flip
def a_gradient_of_a_parameter():
    parameter = torch.nn.Parameter(ones(3))
    return calls(
        lambda x: x + 1 if parameter.grad is None else x + parameter.grad,
        (ones(3),),
        (ones(3),),
        ("none", "parameter.grad", "None", "a Tensor"),
        ("type", "parameter.grad", "<class 'torch.Tensor'>", "<class 'NoneType'>"),
        TENSOR_OR_NONE,
        lambda: attribute(parameter, "grad", ones(3)),
    )


@flip
def a_bias():
    linear = torch.nn.Linear(3, 3)
    return calls(
        linear,
        (ones(3),),
        (ones(3),),
        ("type", "self._parameters['bias']", "<class 'torch.nn.parameter.Parameter'>", "<class 'NoneType'>"),
        ("none", "self._parameters['bias']", "None", "a Parameter"),
        TENSOR_OR_NONE,
        lambda: attribute(linear, "bias", None),
    )


@flip
def requires_grad_of_a_parameter():
    linear = torch.nn.Linear(3, 3)
    return calls(
        lambda weight: weight * 2,
        (linear.weight,),
        (linear.weight,),
        ("requires_grad", "weight", "True", "False"),
        change=lambda: setting(lambda: linear.weight.requires_grad, linear.weight.requires_grad_, value=False),
    )


@flip
def another_module_in_a_list():
    layers = torch.nn.ModuleList([torch.nn.Linear(3, 3)])

    def forward(x):
        for layer in layers:
            x = layer(x)
        return x

    @contextlib.contextmanager
    def longer():
        layers.append(torch.nn.Linear(3, 3))
        yield
        del layers._modules["1"]

    return calls(forward, (ones(3),), (ones(3),), ("keys", "layers._modules", "no '1'", "'1'"), change=longer)


@flip
def another_type_of_dict_in_a_module():
    """`del layers[1]` replaces the dict of submodules by one of another type."""
    layers = torch.nn.ModuleList([torch.nn.Linear(3, 3)])

    def forward(x):
        for layer in layers:
            x = layer(x)
        return x

    return calls(
        forward,
        (ones(3),),
        (ones(3),),
        ("type", "layers._modules", "<class 'dict'>", "<class 'collections.OrderedDict'>"),
        change=lambda: attribute(layers, "_modules", OrderedDict(layers._modules)),
    )


@flip
def a_hook_of_a_module():
    linear = torch.nn.Linear(3, 3)
    linear._forward_hooks[7] = lambda module, args, output: None
    return calls(
        linear,
        (ones(3),),
        (ones(3),),
        ("keys", "self._forward_hooks", "7", "no 7"),
        None,
        "torch does not guard that a module has no hooks, unless torch._dynamo.config.skip_nnmodule_hook_guards is False",
        lambda: without(linear._forward_hooks, 7),
    )


@contextlib.contextmanager
def without(items, key):
    value = items.pop(key)
    yield
    items[key] = value
