"""Ways in which a program holds state that a function changes: in arguments, closures, classes, descriptors, modules, hooks.

Each way takes `mutate`, a function that changes a state, and the state; it returns a function of a tensor that does so, or a
tuple of such a function and further arguments before the tensor. `KINDS` are the states: torch compiles some of the changes
right, and loses others.
"""

from __future__ import annotations

import contextvars
import enum
import functools
import importlib
import sys
import threading
import types
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

import support.state_package.part
from support import state_package
from support.state_package import part as part_of_package

held = None  # what some ways put their state into
mutate_held = None
setting: contextvars.ContextVar[Any] = contextvars.ContextVar("setting")
module_without_file = types.ModuleType("module_without_file")
sys.modules["module_without_file"] = module_without_file


class Items(list):
    """A subclass of list."""


class Numbers(set):
    """A subclass of set, whose changes torch before 2.15 loses."""


class Kind(NamedTuple):
    """A kind of state: how it is made, changed, and read for a comparison."""

    make: Callable[[], Any]
    mutate: Callable[[Any], None]
    read: Callable[[Any], Any]


def append(state):
    state.append(1)


def count(state):
    state["n"] += 1


def add(state):
    state.add(len(state))


def push(state):  # torch loses what `append` removes from a full deque
    state.append(state[-1] + 1)


def move(state):  # torch loses the order
    state.move_to_end(next(iter(state)))


KINDS = {
    "list": Kind(list, append, list),
    "list subclass": Kind(Items, append, list),
    "dict": Kind(lambda: {"n": 0}, count, dict),
    "set subclass": Kind(lambda: Numbers([0]), add, sorted),
    "full deque": Kind(lambda: deque([0, 1], maxlen=2), push, list),
    "ordered dict": Kind(lambda: OrderedDict.fromkeys("abc"), move, list),
}

WAYS: dict[str, Callable[[Any, Any], Any]] = {}


def way(function):
    WAYS[function.__name__] = function
    return function


@way
def argument(mutate, state):
    def f(state, x):
        mutate(state)
        return x * 2

    return f, state


@way
def in_nested_argument(mutate, state):
    def f(holder, x):
        mutate(holder["a"][0])
        return x * 2

    return f, {"a": (state,)}


@way
def closure(mutate, state):
    def f(x):
        mutate(state)
        return x * 2

    return f


@way
def closure_of_a_function(mutate, state):
    def note():
        mutate(state)

    def f(x):
        note()
        return x * 2

    return f


@way
def closure_three_deep(mutate, state):
    def first():
        def second():
            def third():
                mutate(state)

            third()

        second()

    def f(x):
        first()
        return x * 2

    return f


@way
def nonlocal_variable(mutate, state):
    current = state

    def f(x):
        nonlocal current
        current = current
        mutate(current)
        return x * 2

    return f


@way
def global_variable(mutate, state):
    global held, mutate_held
    held, mutate_held = state, mutate

    def f(x):
        mutate_held(held)
        return x * 2

    return f


@way
def closure_of_method_of_object_made_inside(mutate, state):
    class R:
        def go(self):
            mutate(state)

    def f(x):
        R().go()
        return x * 2

    return f


@way
def closure_of_method_of_object_made_outside(mutate, state):
    class R:
        def go(self):
            mutate(state)

    r = R()

    def f(x):
        r.go()
        return x * 2

    return f


@way
def closure_of_inherited_method(mutate, state):
    class Base:
        def go(self):
            mutate(state)

    class R(Base):
        pass

    r = R()

    def f(x):
        r.go()
        return x * 2

    return f


@way
def closure_of_static_method(mutate, state):
    class R:
        @staticmethod
        def go():
            mutate(state)

    def f(x):
        R.go()
        return x * 2

    return f


@way
def closure_of_class_method(mutate, state):
    class R:
        @classmethod
        def go(cls):
            mutate(state)

    def f(x):
        R.go()
        return x * 2

    return f


@way
def closure_of_property(mutate, state):
    class R:
        @property
        def go(self):
            mutate(state)
            return 2

    r = R()

    def f(x):
        return x * r.go

    return f


@way
def closure_of_cached_property(mutate, state):
    class R:
        @functools.cached_property
        def go(self):
            mutate(state)
            return 2

    r = R()

    def f(x):
        return x * r.go

    return f


@way
def closure_of_init(mutate, state):
    class R:
        def __init__(self):
            mutate(state)

    def f(x):
        R()
        return x * 2

    return f


@way
def closure_of_operator(mutate, state):
    class R:
        def __mul__(self, other):
            mutate(state)
            return other * 2

    r = R()

    def f(x):
        return r * x

    return f


@way
def closure_of_context_manager(mutate, state):
    class R:
        def __enter__(self):
            mutate(state)

        def __exit__(self, *error):
            pass

    def f(x):
        with R():
            return x * 2

    return f


@way
def class_attribute_of_object_made_inside(mutate, state):
    class R:
        kept = state

        def go(self):
            mutate(self.kept)

    def f(x):
        R().go()
        return x * 2

    return f


@way
def class_attribute_of_object_made_outside(mutate, state):
    class R:
        kept = state

        def go(self):
            mutate(self.kept)

    r = R()

    def f(x):
        r.go()
        return x * 2

    return f


@way
def attribute_of_class_in_a_cell(mutate, state):
    class R:
        kept = state

    def f(x):
        mutate(R.kept)
        return x * 2

    return f


@way
def attribute_of_class_in_a_dict(mutate, state):
    class R:
        kept = state

    table = {"r": R}

    def f(x):
        mutate(table["r"].kept)
        return x * 2

    return f


@way
def attribute_of_class_as_argument(mutate, state):
    class R:
        kept = state

    def f(cls, x):
        mutate(cls.kept)
        return x * 2

    return f, R


@way
def attribute_of_nested_class(mutate, state):
    class R:
        class Inner:
            kept = state

    def f(x):
        mutate(R.Inner.kept)
        return x * 2

    return f


@way
def attribute_of_base_class(mutate, state):
    class Base:
        kept = state

    class R(Base):
        pass

    def f(x):
        mutate(R.kept)
        return x * 2

    return f


@way
def attribute_of_class_made_by_type(mutate, state):
    R = type("R", (), {"kept": state})

    def f(x):
        mutate(R.kept)
        return x * 2

    return f


@way
def attribute_of_metaclass(mutate, state):
    class Meta(type):
        kept = state

    class R(metaclass=Meta):
        pass

    def f(x):
        mutate(type(R).kept)
        return x * 2

    return f


@way
def closure_of_metaclass_method(mutate, state):
    class Meta(type):
        def go(cls):
            mutate(state)

    class R(metaclass=Meta):
        pass

    def f(x):
        R.go()
        return x * 2

    return f


@way
def data_descriptor(mutate, state):
    class Field:
        def __init__(self):
            self.kept = state

        def __get__(self, instance, owner):
            mutate(self.kept)
            return 2

        def __set__(self, instance, value):
            pass

    class R:
        field = Field()

    r = R()

    def f(x):
        return x * r.field

    return f


@way
def data_descriptor_that_is_set(mutate, state):
    class Field:
        def __init__(self):
            self.kept = state

        def __get__(self, instance, owner):
            return 2

        def __set__(self, instance, value):
            mutate(self.kept)

    class R:
        field = Field()

    r = R()

    def f(x):
        r.field = 1
        return x * r.field

    return f


@way
def non_data_descriptor(mutate, state):
    class Field:
        kept = state

        def __get__(self, instance, owner):
            mutate(self.kept)
            return 2

    class R:
        field = Field()

    def f(x):
        return x * R().field

    return f


@way
def slot(mutate, state):
    class R:
        __slots__ = ("kept",)

    r = R()
    r.kept = state

    def f(x):
        mutate(r.kept)
        return x * 2

    return f


@way
def attribute_of_an_object(mutate, state):
    holder = types.SimpleNamespace(kept=state)

    def f(x):
        mutate(holder.kept)
        return x * 2

    return f


@way
def callable_object(mutate, state):
    class Fn:
        def __init__(self):
            self.kept = state

        def __call__(self, x):
            mutate(self.kept)
            return x * 2

    return Fn()


@way
def closure_of_call(mutate, state):
    class Fn:
        def __call__(self, x):
            mutate(state)
            return x * 2

    return Fn()


@way
def bound_method(mutate, state):
    class R:
        def __init__(self):
            self.kept = state

        def f(self, x):
            mutate(self.kept)
            return x * 2

    return R().f


@way
def partial_function(mutate, state):
    bound = functools.partial(mutate, state)

    def f(x):
        bound()
        return x * 2

    return f


@way
def partial_as_function(mutate, state):
    def f(kept, x):
        mutate(kept)
        return x * 2

    return functools.partial(f, state)


@way
def partial_method(mutate, state):
    class R:
        def _go(self, kept):
            mutate(kept)

        go = functools.partialmethod(_go, state)

    r = R()

    def f(x):
        r.go()
        return x * 2

    return f


@way
def lambda_in_a_dict(mutate, state):
    table = {"a": lambda: mutate(state), "b": lambda: None}

    def f(x):
        table["a"]()
        return x * 2

    return f


@way
def default_of_the_function(mutate, state):
    def f(x, kept=state):
        mutate(kept)
        return x * 2

    return f


@way
def keyword_default_of_the_function(mutate, state):
    def f(x, *, kept=state):
        mutate(kept)
        return x * 2

    return f


@way
def default_of_another_function(mutate, state):
    def note(kept=state):
        mutate(kept)

    def f(x):
        note()
        return x * 2

    return f


@way
def default_of_a_method(mutate, state):
    class R:
        def go(self, kept=state):
            mutate(kept)

    def f(x):
        R().go()
        return x * 2

    return f


@way
def attribute_of_the_function(mutate, state):
    def f(x):
        mutate(f.kept)
        return x * 2

    f.kept = state
    return f


@way
def attribute_of_another_function(mutate, state):
    def note():
        mutate(note.kept)

    note.kept = state

    def f(x):
        note()
        return x * 2

    return f


@way
def cached_function(mutate, state):
    @functools.lru_cache
    def note():
        mutate(state)

    def f(x):
        note()
        return x * 2

    return f


@way
def cached_function_that_was_called(mutate, state):
    kept = [None]

    @functools.lru_cache(maxsize=2)
    def note(key):
        if kept[0] is not None:
            mutate(kept[0])
        return 2

    note("a")
    kept[0] = state

    def f(x):
        return x * note("a")

    return f


@way
def cached_static_method(mutate, state):
    class R:
        @staticmethod
        @functools.cache
        def go():
            mutate(state)

    def f(x):
        R.go()
        return x * 2

    return f


@way
def wrapper_around_a_function(mutate, state):
    def decorate(fn):
        @functools.wraps(fn)
        def wrapper(*args):
            mutate(state)
            return fn(*args)

        return wrapper

    @decorate
    def f(x):
        return x * 2

    return f


@way
def wrapper_around_forward(mutate, state):
    def decorate(fn):
        @functools.wraps(fn)
        def wrapper(*args):
            mutate(state)
            return fn(*args)

        return wrapper

    class M(nn.Module):
        @decorate
        def forward(self, x):
            return x * 2

    return M()


@way
def wrapper_around_forward_of_an_instance(mutate, state):
    class M(nn.Module):
        def forward(self, x):
            return x * 2

    m = M()
    original = m.forward

    def forward(x):
        mutate(state)
        return original(x)

    m.forward = forward
    return m


@way
def function_without_gradients(mutate, state):
    @torch.no_grad()
    def f(x):
        mutate(state)
        return x * 2

    return f


@way
def attribute_of_a_module(mutate, state):
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.kept = state

        def forward(self, x):
            mutate(self.kept)
            return x * 2

    return M()


@way
def attribute_of_a_submodule(mutate, state):
    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.kept = state

        def forward(self, x):
            mutate(self.kept)
            return x * 2

    return nn.Sequential(Inner(), nn.Identity())


@way
def forward_hook(mutate, state):
    m = nn.Sequential(nn.ReLU())
    m[0].register_forward_hook(lambda module, args, output: mutate(state))
    return m


@way
def forward_pre_hook(mutate, state):
    m = nn.Sequential(nn.ReLU())
    m[0].register_forward_pre_hook(lambda module, args: mutate(state))
    return m


@way
def module_in_a_global(mutate, state):
    support.state_package.part.held, support.state_package.part.mutate = state, mutate

    def f(x):
        support.state_package.part.change()
        return x * 2

    return f


@way
def module_in_a_module(mutate, state):
    state_package.part.held = state

    def f(x):
        mutate(state_package.part.held)
        return x * 2

    return f


@way
def module_under_another_name(mutate, state):
    part_of_package.held = state

    def f(x):
        mutate(part_of_package.held)
        return x * 2

    return f


@way
def module_in_a_closure(mutate, state):
    module = part_of_package
    module.held = state

    def f(x):
        mutate(module.held)
        return x * 2

    return f


@way
def module_in_a_container(mutate, state):
    modules = {"part": part_of_package}
    part_of_package.held = state

    def f(x):
        mutate(modules["part"].held)
        return x * 2

    return f


@way
def module_imported_inside(mutate, state):
    part_of_package.held = state

    def f(x):
        import support.state_package.part as part

        mutate(part.held)
        return x * 2

    return f


@way
def name_imported_inside(mutate, state):
    part_of_package.held = state

    def f(x):
        from support.state_package.part import held

        mutate(held)
        return x * 2

    return f


@way
def module_that_has_no_file(mutate, state):
    module_without_file.held = state

    def f(x):
        mutate(module_without_file.held)
        return x * 2

    return f


@way
def module_found_by_name(mutate, state):
    part_of_package.held = state

    def f(x):
        mutate(sys.modules["support.state_package.part"].held)
        return x * 2

    return f


@way
def module_imported_by_name(mutate, state):
    part_of_package.held = state

    def f(x):
        mutate(importlib.import_module("support.state_package.part").held)
        return x * 2

    return f


@way
def computed_attribute_of_a_module(mutate, state):
    part_of_package.held = state

    def f(x):
        mutate(getattr(part_of_package, "".join(("he", "ld"))))
        return x * 2

    return f


@way
def computed_global(mutate, state):
    global held
    held = state

    def f(x):
        mutate(globals()["".join(("he", "ld"))])
        return x * 2

    return f


@way
def global_by_a_constant_name(mutate, state):
    global held
    held = state

    def f(x):
        mutate(globals()["held"])
        return x * 2

    return f


@way
def attribute_by_a_constant_name(mutate, state):
    part_of_package.held = state

    def f(x):
        mutate(getattr(part_of_package, "held"))  # noqa: B009
        return x * 2

    return f


@way
def computed_attribute_of_a_class(mutate, state):
    class R:
        kept = state

    def f(x):
        mutate(getattr(R, "".join(("ke", "pt"))))
        return x * 2

    return f


@way
def globals_of_executed_code(mutate, state):
    scope = {"mutate": mutate, "held": state}
    exec("def f(x):\n    mutate(held)\n    return x * 2", scope)
    return scope["f"]


@way
def thread_local(mutate, state):
    local = threading.local()
    local.kept = state

    def f(x):
        mutate(local.kept)
        return x * 2

    return f


@way
def context_variable(mutate, state):
    setting.set(state)

    def f(x):
        mutate(setting.get())
        return x * 2

    return f


@way
def attribute_of_an_int(mutate, state):
    class Number(int):
        pass

    number = Number(2)
    number.kept = state

    def f(number, x):
        mutate(number.kept)
        return x * 2

    return f, number


@way
def weak_reference(mutate, state):
    class R:
        pass

    r = R()
    r.kept = state
    reference = weakref.ref(r)

    def f(x, strong=r):
        mutate(reference().kept)
        return x * 2

    return f


@way
def weak_dictionary(mutate, state):
    class R:
        pass

    r = R()
    table = weakref.WeakKeyDictionary({r: state})

    def f(x):
        mutate(table[r])
        return x * 2

    return f


@way
def weak_values(mutate, state):
    class R:
        pass

    r = R()
    r.kept = state
    table = weakref.WeakValueDictionary({"r": r})

    def f(x, strong=r):
        mutate(table["r"].kept)
        return x * 2

    return f


@way
def member_of_an_enum(mutate, state):
    class Mode(enum.Enum):
        FAST = state

    def f(x):
        mutate(Mode.FAST.value)
        return x * 2

    return f


@way
def view_of_a_dict(mutate, state):
    proxy = types.MappingProxyType({"kept": state})

    def f(x):
        mutate(proxy["kept"])
        return x * 2

    return f


@way
def single_dispatch(mutate, state):
    @functools.singledispatch
    def note(value):
        mutate(state)

    def f(x):
        note(1)
        return x * 2

    return f


@way
def generator_object(mutate, state):
    def steps():
        while True:
            mutate(state)
            yield 2

    iterator = steps()

    def f(x):
        return x * next(iterator)

    return f


@way
def generator_function(mutate, state):
    def steps():
        mutate(state)
        yield 2

    def f(x):
        return x * next(steps())

    return f


@way
def attribute_of_a_tensor(mutate, state):
    weight = torch.ones(2)
    weight.kept = state

    def f(x):
        mutate(weight.kept)
        return x * weight

    return f


@way
def attribute_of_an_autograd_function(mutate, state):
    class Double(torch.autograd.Function):
        kept = state

        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    def f(x):
        mutate(Double.kept)
        return Double.apply(x)

    return f


@way
def array_of_objects(mutate, state):
    import numpy as np

    array = np.empty(1, dtype=object)
    array[0] = state

    def f(x):
        mutate(array[0])
        return x * 2

    return f


@way
def compiled_function(mutate, state):
    def f(x):
        mutate(state)
        return x * 2

    return torch.compile(f, backend="eager")


@way
def call_of_a_compiled_function(mutate, state):
    @torch.compile(backend="eager")
    def inner(x):
        mutate(state)
        return x * 2

    def f(x):
        return inner(x) + 1

    return f
