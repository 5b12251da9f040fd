"""A value that a recorded function reads changes after the capture, in one of many ways: the next call has to use it."""

from __future__ import annotations

import array
import collections
import contextlib
import contextvars
import decimal
import enum
import functools
import math
import multiprocessing
import operator
import pathlib
import sys
import threading
import types
import typing
import warnings

import numpy as np
import pytest
import torch
from support.twin_training import TwinTraining
from support.ways_to_hold_state import WAYS
from torch import nn

from dynx import cudagraphs
from dynx.errors import DynxWarning, ReplayDiffers

CASES = {}
EMULATOR = cudagraphs.Config(runtime="emulator")
T = typing.TypeVar("T")
linear, small = nn.Linear(3, 3), nn.Linear(2, 2)
COMPUTED = {  # names that the code computes, which the documentation says are not followed
    *("computed_attribute_of_a_class", "computed_attribute_of_a_module", "computed_global"),
}
GRADIENTS = {"attribute_that_a_backward_reads", "closure_that_a_backward_reads"}  # computed inside


def case(make):
    """Add a generator that yields a function of a tensor, then changes what the function reads."""
    CASES[make.__name__] = make
    return make


# Names that get a value later


@case
def default_of_a_class_that_an_object_overrides():
    class Settings:
        factor = 1.0

    settings = Settings()
    yield lambda x: linear(x) * settings.factor
    settings.factor = 2.0


@case
def default_of_a_base_class_that_a_class_overrides():
    class Base:
        factor = 1.0

    class Settings(Base):
        pass

    settings = Settings()
    yield lambda x: linear(x) * settings.factor
    Settings.factor = 2.0


@case
def attribute_that_hasattr_looks_for():
    settings = types.SimpleNamespace()
    yield lambda x: linear(x) * (2.0 if hasattr(settings, "doubled") else 1.0)
    settings.doubled = True


@case
def attribute_with_a_default_in_getattr():
    settings = types.SimpleNamespace()
    yield lambda x: linear(x) * getattr(settings, "factor", 1.0)
    settings.factor = 2.0


@case
def builtin_function_that_a_global_hides():
    scope = {"linear": linear}
    exec("def f(x):\n    return linear(x) * abs(-2.0)", scope)
    yield scope["f"]
    scope["abs"] = lambda number: 3.0


@case
def method_that_an_object_overrides():
    class Scale:
        def apply(self, y):
            return y

    scale = Scale()
    yield lambda x: scale.apply(linear(x))
    scale.apply = lambda y: y * 2


@case
def attribute_of_a_user_module_that_appears():
    module = types.ModuleType("settings_of_a_test")
    yield lambda x: linear(x) * getattr(module, "factor", 1.0)
    module.factor = 2.0


@case
def default_that_an_object_with_other_new_names_overrides():
    class Settings:
        factor = 1.0

    settings = Settings()
    yield lambda x: linear(x) * settings.factor
    settings.other = 3
    settings.factor = 2.0
    del settings.other


# Values that are neither numbers nor text


class Mode(enum.Enum):
    SINGLE = 1
    DOUBLE = 2


def replaced(before, after, use):
    """Return a case in which an attribute is replaced by another value."""

    def make():
        settings = types.SimpleNamespace(value=before)
        yield lambda x: use(linear(x), settings.value)
        settings.value = after

    return make


def multiply(y, value):
    return y * float(value)


CASES |= {
    "member_of_an_enum_replaced": replaced(Mode.SINGLE, Mode.DOUBLE, lambda y, mode: y * 2 if mode is Mode.DOUBLE else y),
    "number_of_numpy": replaced(np.float32(1), np.float32(2), multiply),
    "decimal_number": replaced(decimal.Decimal(1), decimal.Decimal(2), multiply),
    "path": replaced(pathlib.Path("a"), pathlib.Path("bb"), lambda y, path: y * len(str(path))),
    "function_of_torch": replaced(torch.tanh, torch.relu, lambda y, activation: activation(y)),
    "function_of_the_library": replaced(math.sin, math.cos, lambda y, function: y * function(1.0)),
    "partial_function": replaced(
        functools.partial(torch.add, alpha=1), functools.partial(torch.add, alpha=2), lambda y, add: add(y, y)
    ),
    "class_of_the_user": replaced(
        type("One", (), {"factor": 1}), type("Two", (), {"factor": 2}), lambda y, kind: y * kind.factor
    ),
    "dtype": replaced(torch.float32, torch.float64, lambda y, dtype: y.to(dtype)),
    "slice": replaced(slice(0, 1), slice(1, 2), lambda y, part: y[part]),
    "text_of_a_subclass": replaced(
        type("Text", (str,), {})("a"), type("Text", (str,), {})("bb"), lambda y, text: y * len(text)
    ),
    "none": replaced(None, 2.0, lambda y, factor: y if factor is None else y * factor),
    "frozen_set": replaced(frozenset((1,)), frozenset((1, 2)), lambda y, numbers: y * len(numbers)),
    "range": replaced(range(1), range(2), lambda y, numbers: y * len(numbers)),
}


@case
def numbers_in_a_list_of_enums():
    modes = [Mode.SINGLE]
    yield lambda x: linear(x) * modes[0].value
    modes[0] = Mode.DOUBLE


@case
def text_of_a_subclass_with_attributes():
    class Text(str):
        pass

    text = Text("a")
    text.factor = 1.0
    yield lambda x: linear(x) * text.factor
    text.factor = 2.0


# Code that Python or autograd calls without its name


class Double(torch.autograd.Function):
    factor = 1.0

    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        return gradient * Double.factor


@case
def attribute_that_a_backward_reads():
    def gradient(x):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            return torch.autograd.grad(Double.apply(linear(x)).sum(), x)[0]

    Double.factor = 1.0
    yield gradient
    Double.factor = 2.0


@case
def closure_that_a_backward_reads():
    settings = {"factor": 1.0}

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, gradient):
            return gradient * settings["factor"]

    def gradient(x):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            return torch.autograd.grad(Scaled.apply(linear(x)).sum(), x)[0]

    yield gradient
    settings["factor"] = 2.0


@case
def operators_of_a_class():
    settings = {"factor": 1.0}

    class Number:
        def __rmul__(self, other):
            return other * settings["factor"]

        def __enter__(self):
            settings["entered"] = 1
            return self

        def __exit__(self, *error):
            pass

        def __bool__(self):
            return settings["factor"] > 0

    number = Number()

    def f(x):
        with number:
            return linear(x) * number if number else linear(x)

    yield f
    settings["factor"] = 2.0


@case
def setter_of_a_property():
    factors = [1.0]

    class Settings:
        @property
        def factor(self):
            return self.__dict__["kept"]

        @factor.setter
        def factor(self, value):
            self.__dict__["kept"] = value * factors[0]

    def f(x):
        settings = Settings()
        settings.factor = 2.0
        return linear(x) * settings.factor

    yield f
    factors[0] = 3.0


@case
def property_of_a_class_replaced():
    class Settings:
        factor = property(lambda self: 1.0)

    settings = Settings()
    yield lambda x: linear(x) * settings.factor
    Settings.factor = property(lambda self: 2.0)


@case
def static_method_of_a_class_replaced():
    class Settings:
        @staticmethod
        def factor():
            return 1.0

    yield lambda x: linear(x) * Settings.factor()
    Settings.factor = staticmethod(lambda: 2.0)


@case
def iterator_of_the_user():
    class Numbers:
        def __init__(self):
            self.number = 0.0

        def __next__(self):
            return self.number

    numbers = Numbers()
    yield lambda x: linear(x) * next(numbers)
    numbers.number = 2.0


@case
def class_of_an_object_replaced():
    class One:
        def factor(self):
            return 1.0

    class Two:
        def factor(self):
            return 2.0

    number = One()
    yield lambda x: linear(x) * number.factor()
    number.__class__ = Two


@case
def code_of_a_function_replaced():
    def factor():
        return 1.0

    def other():
        return 2.0

    yield lambda x: linear(x) * factor()
    factor.__code__ = other.__code__


@case
def hook_of_a_submodule():
    settings = {"factor": 1.0}
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU()).requires_grad_(False)
    model[0].register_forward_hook(lambda module, args, result: result * settings["factor"])
    yield lambda x: linear(model(x))
    settings["factor"] = 2.0


SCALE = 1.0


class Scaled(nn.Module):
    def forward(self, x):
        return x * SCALE


@case
def global_that_a_submodule_reads():
    global SCALE
    model = nn.Sequential(linear, Scaled())
    yield lambda x: model(x)
    SCALE = 2.0
    yield
    SCALE = 1.0


# Containers and objects of the standard library


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


def assert_follows(recorded, f, program):
    """Raise AssertionError unless calls have the results of the function after each change that the program makes."""
    x, is_over = torch.randn(2, 3), False
    while not is_over:
        is_over = next(program, "over") == "over"
        for _ in range(3):
            torch.testing.assert_close(recorded(x), f(x))


@pytest.mark.parametrize("name", CASES)
def test_fast_path_uses_a_changed_value_in_the_next_call(name):
    program = CASES[name]()
    f, x = next(program), torch.randn(2, 3)
    recorded = cudagraphs.fast_path(f, config=EMULATOR)
    for _ in range(3):
        torch.testing.assert_close(recorded(x), f(x))
    assert_follows(recorded, f, program)


@pytest.mark.parametrize("name", sorted(set(CASES) - GRADIENTS))
def test_train_step_uses_a_changed_value_in_the_next_call(name):
    program = CASES[name]()
    f, x = next(program), torch.randn(2, 3)

    def loss(x):
        return f(x).mean()

    recorded = cudagraphs.train_step(loss, linear.parameters(), config=EMULATOR)
    for _ in range(3):
        torch.testing.assert_close(recorded(x), loss(x).detach())
    assert_follows(recorded, lambda x: loss(x).detach(), program)


def with_module(f):
    def whole(*args):
        return small(f(*args))

    return whole


def totals(way, config=None):
    """Add a number from a state to a tensor in each call; return the tensor's values before and after the number changes."""
    state, total = {"number": 1.0}, torch.zeros(())

    def read(state):
        total.add_(state["number"])

    made = WAYS[way](read, state)
    f, *arguments = made if isinstance(made, tuple) else (made,)
    f = with_module(f)
    if config is not None:
        f = cudagraphs.fast_path(f, config=config)
    for _ in range(4):
        f(*arguments, torch.ones(2))
    before = total.item()
    state["number"] = 10.0
    for _ in range(3):
        f(*arguments, torch.ones(2))
    return before, total.item()


class Doubled(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        return result * 2 if function is torch.relu else result


def test_call_under_a_mode_of_torch_does_as_the_mode_says():
    run, x, mode = cudagraphs.fast_path(lambda x: torch.relu(linear(x)), config=EMULATOR), torch.ones(2, 3), Doubled()
    for is_active in (0, 0, 0, 1, 1, 1, 0, 1, 0):
        with mode if is_active else contextlib.nullcontext():
            result = run(x)
        torch.testing.assert_close(result, torch.relu(linear(x)) * (1 + is_active))


def test_default_device_is_that_of_the_call():
    run = cudagraphs.fast_path(lambda x: linear(x) * (2.0 if torch.zeros(()).is_meta else 1.0), config=EMULATOR)
    for device in ("cpu", "cpu", "cpu", "meta", "meta", "cpu"):
        with torch.device(device):
            result = run(torch.ones(2, 3, device="cpu"))
        torch.testing.assert_close(result, linear(torch.ones(2, 3)) * (2.0 if device == "meta" else 1.0))


class Scheduled:
    """A factor that an optimizer keeps in its groups or in the state of parameters."""

    def __init__(self):
        self.factor = 1.0


class Custom(torch.optim.Optimizer):
    """Steps by what its groups and the state of its parameters hold: numbers in lists, dicts and objects."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.1, "factors": [1.0], "options": {"factors": [1.0]}, "schedule": Scheduled()})
        for group in self.param_groups:
            for param in group["params"]:
                self.state[param] = {"scales": [1.0], "schedule": Scheduled()}

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            factor = group["factors"][0] * group["options"]["factors"][0] * group["schedule"].factor
            for param in group["params"]:
                scale = self.state[param]["scales"][0] * self.state[param]["schedule"].factor
                param.sub_(param.grad, alpha=group["lr"] * factor * scale)


def change_list(optimizer):
    optimizer.param_groups[0]["factors"][0] = 2.0


def change_nested_list(optimizer):
    optimizer.param_groups[0]["options"]["factors"][0] = 2.0


def change_object(optimizer):
    optimizer.param_groups[0]["schedule"].factor = 2.0


def change_list_of_a_parameter(optimizer):
    for param in optimizer.param_groups[0]["params"]:
        optimizer.state[param]["scales"][0] = 2.0


def change_object_of_a_parameter(optimizer):
    for param in optimizer.param_groups[0]["params"]:
        optimizer.state[param]["schedule"].factor = 2.0


@pytest.mark.parametrize(
    "change", [change_list, change_nested_list, change_object, change_list_of_a_parameter, change_object_of_a_parameter]
)
def test_train_step_uses_what_an_optimizer_keeps_in_containers_and_objects(change):
    twins = TwinTraining(
        "cpu", nn.Linear(3, 1), lambda model: Custom(model.parameters()), loss=lambda model, x: model(x).mean()
    )
    twins.assert_steps_agree(4, shape=(4, 3))
    twins.change(lambda model, optimizer: change(optimizer))
    twins.assert_steps_agree(4, shape=(4, 3))


@pytest.mark.parametrize("way", [way for way in WAYS if way not in COMPUTED])
def test_state_is_read_anew_however_a_program_holds_it(way):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DynxWarning)
        assert totals(way, EMULATOR) == totals(way)


@pytest.mark.parametrize("way", sorted(COMPUTED))
def test_state_behind_a_computed_name_is_found_by_verify(way):
    with pytest.raises(ReplayDiffers):
        totals(way, cudagraphs.Config(runtime="emulator", verify=5))
