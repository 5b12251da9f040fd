"""Values that change while compiled code keeps the old ones, each with a near miss that torch guards or traces again.

Each function returns `fn(x)`, a change, and then the same for the near miss.
"""

from __future__ import annotations

import abc
import collections
import dataclasses
import inspect
import os
import sys
import types
import typing
from collections.abc import Callable
from types import SimpleNamespace

import torch
from torch import nn

Fn = Callable[[torch.Tensor], torch.Tensor]
Change = Callable[[], object]
Program = tuple[Fn, Change, Fn, Change]

PROGRAMS: dict[str, Callable[[], Program]] = {}


def program(make: Callable[[], Program]) -> Callable[[], Program]:
    PROGRAMS[make.__name__] = make
    return make


def setter(owner, name, value):
    return lambda: setattr(owner, name, value)


class Inner(nn.Module):
    def forward(self, x):
        return x * 2


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, x):
        return self.inner(x)


def ten_times(*args):
    return args[-1] * 10


@program
def getenv():
    os.environ["DYNX_TEST"] = "2"
    change = lambda: os.environ.update(DYNX_TEST="3")
    return lambda x: x * float(os.getenv("DYNX_TEST")), change, lambda x: x * float(os.environ["DYNX_TEST"]), change


@program
def in_environ():
    os.environ.pop("DYNX_TEST", None)
    change = lambda: os.environ.update(DYNX_TEST="3")
    read = lambda x: x * (2.0 if "DYNX_TEST" in os.environ else 1.0)
    return read, change, read, lambda: os.environ.update(DYNX_OTHER="3")


@program
def attribute_of_a_metaclass():
    class Meta(type):
        scale = 2.0

    class Config(metaclass=Meta):
        pass

    config = Config()
    config.own = 2.0
    return lambda x: x * Config.scale, setter(Meta, "scale", 4.0), lambda x: x * config.own, setter(config, "own", 4.0)


@program
def two_attributes_are_one_object():
    hold = SimpleNamespace(a=object(), none=None)
    hold.b = hold.a
    near = lambda x: x * (2.0 if hold.none is None else 1.0)
    return lambda x: x * (2.0 if hold.a is hold.b else 1.0), setter(hold, "b", object()), near, setter(hold, "none", 1)


@program
def two_items_are_one_object():
    items = [object()] * 2
    change = lambda: items.__setitem__(1, object())
    return lambda x: x * (2.0 if items[0] is items[1] else 1.0), change, lambda x: x * len(items), lambda: items.append(1)


@program
def forward_hook():
    net, other = Net(), Net()
    hook = lambda module, args, out: out + 1
    register = lambda: net.inner.register_forward_hook(hook)
    handle = other.inner.register_forward_hook(hook)
    return net.forward, register, other.forward, handle.remove


@program
def forward_pre_hook():
    net = Net()
    return net.forward, lambda: net.inner.register_forward_pre_hook(lambda m, args: (args[0] + 1,)), net.forward, net.eval


@program
def hook_of_all_modules():
    net = Net()
    register = lambda: nn.modules.module.register_module_forward_hook(lambda m, args, out: out + 1)
    return lambda x: net(x), register, lambda x: x * 2, register


@program
def forward_of_a_class():
    class Layer(Inner):
        def forward(self, x):
            return x * 3

    net, other = Net(), Net()
    net.inner, other.inner = Layer(), Layer()
    return net.forward, setter(Layer, "forward", ten_times), other.forward, setter(other.inner, "forward", ten_times)


@program
def method_of_a_class():
    class Scale:
        def apply(self, x):
            return x * 2

    scale, other = Scale(), Scale()
    replace = setter(Scale, "apply", ten_times)
    return lambda x: scale.apply(x), replace, lambda x: other.apply(x), setter(other, "apply", ten_times)


@program
def method_that_a_subclass_gets_later():
    class Base:
        def apply(self, x):
            return x * 2

    class Scale(Base):
        pass

    scale = Scale()
    near = lambda x: Base.apply(scale, x)
    return lambda x: scale.apply(x), setter(Scale, "apply", ten_times), near, setter(Base, "apply", ten_times)


@program
def code_of_a_method():
    class Scale:
        def apply(self, x):
            return x * 2

    def other(self, x):
        return x * 9

    def plain(x):
        return x * 2

    def other_plain(x):
        return x * 9

    scale = Scale()
    replace = setter(Scale.apply, "__code__", other.__code__)
    return lambda x: scale.apply(x), replace, lambda x: plain(x), setter(plain, "__code__", other_plain.__code__)


@program
def attribute_of_a_module_that_is_absent():
    module, namespace = types.ModuleType("absent"), SimpleNamespace()
    change = setter(module, "scale", 3.0)
    near = lambda x: x * getattr(namespace, "scale", 2.0)
    return lambda x: x * getattr(module, "scale", 2.0), change, near, setter(namespace, "scale", 3.0)


@program
def constant_result():
    values, others = [2.0], [2.0]

    @torch.compiler.assume_constant_result
    def first():
        return values[0]

    def second():
        return others[0]

    change = lambda: values.__setitem__(0, 5.0)
    return lambda x: x * first(), change, lambda x: x * second(), lambda: others.__setitem__(0, 5.0)


@program
def registered_in_an_abstract_class():
    class Shape(abc.ABC):
        pass

    class Square:
        pass

    hold = SimpleNamespace(shape=Square())
    square = Square()
    near = lambda x: x * (2.0 if isinstance(hold.shape, Square) else 1.0)
    fn = lambda x: x * (2.0 if isinstance(square, Shape) else 1.0)
    return fn, lambda: Shape.register(Square), near, setter(hold, "shape", 1)


@program
def method_of_a_protocol():
    @typing.runtime_checkable
    class Runs(typing.Protocol):
        def go(self): ...

    class Car:
        pass

    car = Car()
    fn = lambda x: x * (2.0 if isinstance(car, Runs) else 1.0)
    return fn, setter(Car, "go", ten_times), fn, setter(Car, "stop", ten_times)


@program
def signature():
    def f(a):
        pass

    f.count = 1
    change = setter(f, "__signature__", inspect.signature(lambda a, b: 0))
    return lambda x: x * len(inspect.signature(f).parameters), change, lambda x: x * f.count, setter(f, "count", 2)


@program
def fields_of_a_dataclass():
    @dataclasses.dataclass
    class Point:
        x: float = 2.0

    point = Point()
    change = lambda: Point.__dataclass_fields__.update(y=Point.__dataclass_fields__["x"])
    return lambda x: x * len(dataclasses.fields(point)), change, lambda x: x * point.x, setter(point, "x", 3.0)


@program
def key_of_a_map_of_several_dicts():
    maps, present = collections.ChainMap({}, {"a": 2.0}), collections.ChainMap({"a": 2.0}, {})
    change = lambda: maps.__setitem__("a", 5.0)
    return lambda x: x * maps["a"], change, lambda x: x * present["a"], lambda: present.__setitem__("a", 5.0)


@program
def order_of_an_ordered_dict():
    ordered, plain = collections.OrderedDict(a=2.0, b=5.0), {"a": 2.0, "b": 5.0}
    first = lambda values: next(iter(values.values()))
    reorder = lambda: plain.__setitem__("a", plain.pop("a"))
    return lambda x: x * first(ordered), lambda: ordered.move_to_end("a"), lambda x: x * first(plain), reorder


@program
def setting_of_python():
    limit = sys.getrecursionlimit()
    change = lambda: sys.setrecursionlimit(limit + 1)
    return lambda x: x * sys.getrecursionlimit(), change, lambda x: x * limit, change


@program
def module_imported_in_the_function():
    for name in ("dynx_test_settings", "dynx_test_others"):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].scale = 2.0

    def fn(x):
        import dynx_test_settings

        return x * dynx_test_settings.scale

    def near(x):
        import dynx_test_others

        return x * dynx_test_others.scale

    def replace():
        sys.modules["dynx_test_settings"] = types.ModuleType("dynx_test_settings")
        sys.modules["dynx_test_settings"].scale = 3.0

    return fn, replace, near, setter(sys.modules["dynx_test_others"], "scale", 4.0)


@program
def builtin_that_a_global_hides():
    from support import stale_programs

    change = setter(stale_programs, "abs", lambda value: 5.0)
    return lambda x: x * abs(-2.0), change, lambda x: x * min(2.0, 3.0), setter(stale_programs, "divmod", 1)


@program
def item_of_a_class():
    values = {"a": 2.0}

    class Table:
        def __class_getitem__(cls, key):
            return values[key]

    change = lambda: values.__setitem__("a", 5.0)
    return lambda x: x * Table["a"], change, lambda x: x * values["a"], change


@program
def number_of_attributes():
    hold = SimpleNamespace(a=2.0)
    return lambda x: x * len(hold.__dict__), setter(hold, "b", 1), lambda x: x * hold.a, setter(hold, "c", 1)


@program
def submodule_hidden_by_an_attribute():
    class Other(nn.Module):
        def forward(self, x):
            return x + 5

    net = Net()
    hide = lambda: object.__setattr__(net, "inner", Other())
    return net.forward, hide, net.forward, setter(net, "inner", Other())
