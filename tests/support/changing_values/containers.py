"""Values in containers and objects of the standard library, of NumPy and of torch."""

from __future__ import annotations

import array
import collections
import contextlib
import contextvars
import functools
import multiprocessing
import operator
import sys
import threading
import types
import typing

import torch
from torch import nn

from support.changing_values.kinds import case, linear

T = typing.TypeVar("T")


@case
def mapping_of_a_user_dict():
    settings = collections.UserDict(factor=1.0)
    yield lambda x: linear(x) * settings["factor"]
    settings["factor"] = 2.0


@case
def chained_mappings():
    settings = collections.ChainMap({}, {"factor": 1.0})
    yield lambda x: linear(x) * settings["factor"]
    settings["factor"] = 2.0


@case
def bytes_and_arrays():
    numbers, more = bytearray([1]), array.array("d", [1.0])
    yield lambda x: linear(x) * numbers[0] * more[0]
    numbers[0], more[0] = 2, 3.0


@case
def attribute_of_a_list():
    class Items(list):
        factor = 1.0

    items = Items([1.0])
    yield lambda x: linear(x) * items[0] * items.factor
    items.factor = 2.0


@case
def attribute_of_a_dict():
    class Items(dict):
        pass

    items = Items(a=1.0)
    items.factor = 1.0
    yield lambda x: linear(x) * items["a"] * items.factor
    items.factor = 2.0


@case
def context_variable_and_thread():
    variable, local = contextvars.ContextVar("factor", default=1.0), threading.local()
    local.factor = 1.0
    yield lambda x: linear(x) * variable.get() * local.factor
    variable.set(2.0)
    yield
    local.factor = 3.0


@case
def event_and_shared_value():
    event, value = threading.Event(), multiprocessing.Value("d", 1.0)
    yield lambda x: linear(x) * value.value * (2.0 if event.is_set() else 1.0)
    event.set()
    yield
    value.value = 3.0


@case
def cached_function_that_is_cleared():
    settings = {"factor": 1.0}

    @functools.lru_cache
    def factor():
        return settings["factor"]

    yield lambda x: linear(x) * factor()
    settings["factor"] = 2.0
    factor.cache_clear()


@case
def keywords_of_a_partial():
    act = functools.partial(nn.functional.leaky_relu, negative_slope=0.1)
    yield lambda x: act(linear(x))
    act.keywords["negative_slope"] = 0.5


@case
def registry_of_a_dispatcher():
    @functools.singledispatch
    def factor(value):
        return 1.0

    yield lambda x: linear(x) * factor(3)
    factor.register(int, lambda value: 2.0)


@case
def method_that_makes_objects():
    settings = {"factor": 1.0}

    class Number:
        def __new__(cls):
            made = super().__new__(cls)
            made.factor = settings["factor"]
            return made

    yield lambda x: linear(x) * Number().factor
    settings["factor"] = 2.0


@case
def attribute_behind_a_generic_alias():
    class Box(typing.Generic[T]):
        factor = 1.0

    alias = Box[int]
    yield lambda x: linear(x) * alias.factor
    Box.factor = 2.0


@case
def value_of_a_null_context():
    context = contextlib.nullcontext(1.0)

    def f(x):
        with context as factor:
            return linear(x) * factor

    yield f
    context.enter_result = 2.0


@case
def layouts_of_tensors_at_the_same_address():
    table, cache, memory = torch.arange(9.0).view(3, 3), torch.zeros(0), torch.arange(1.0, 9.0)
    cache.data = memory[:4]
    yield lambda x: linear(x) @ table * cache.sum()
    table.t_()
    yield
    cache.data = memory[:8]


@case
def buffer_that_is_resized():
    module = nn.Linear(3, 3)
    module.register_buffer("table", torch.arange(6.0))
    yield lambda x: module(x).detach() * module.table.dim() * linear(x)
    module.table.unsqueeze_(0)


@case
def getters_of_operator():
    settings = types.SimpleNamespace(factor=1.0)
    get = operator.itemgetter("factor")
    yield lambda x: linear(x) * get(vars(settings))
    settings.factor = 2.0


@case
def method_of_a_partial():
    class Scale:
        def __init__(self):
            self.by = 1.0

        def multiply(self, y, times):
            return y * self.by * times

        double = functools.partialmethod(multiply, times=2)

    scale = Scale()
    yield lambda x: scale.double(linear(x))
    scale.by = 3.0


@case
def bound_method_of_a_dict():
    settings = {"factor": 1.0}
    get = settings.get
    yield lambda x: linear(x) * get("factor")
    settings["factor"] = 2.0


@case
def module_imported_inside():
    sys.modules["settings_of_this_test"] = module = types.ModuleType("settings_of_this_test")
    module.factor = 1.0

    def f(x):
        import settings_of_this_test

        return linear(x) * settings_of_this_test.factor

    yield f
    module.factor = 2.0
    yield
    del sys.modules["settings_of_this_test"]
    sys.modules["settings_of_this_test"] = other = types.ModuleType("settings_of_this_test")
    other.factor = 3.0


@case
def groups_of_an_optimizer():
    optimizer = torch.optim.SGD(linear.parameters(), lr=1.0)
    yield lambda x: linear(x) * optimizer.param_groups[0]["lr"]
    optimizer.param_groups[0]["lr"] = 2.0
