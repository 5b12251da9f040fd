"""Pairs of backends with the same code that differ in one hidden way: they must not share what one of them compiled."""

from __future__ import annotations

import collections
import contextvars
import dataclasses
import enum
import functools
import math
import operator
import types
import weakref

import pytest
import torch

from dynx.guards import keyed


def closing_over(value):
    return lambda gm, inputs: gm.forward if value is not None else None


def wrapping(fn):
    """A backend that calls the function it wraps through `__wrapped__`."""
    wrapper = functools.wraps(fn)(lambda gm, inputs: wrapper.__wrapped__(gm, inputs))
    return wrapper


def first(gm, inputs):
    return gm.forward


def second(gm, inputs):
    return gm


def renamed(attribute, value):
    def fn(gm, inputs):
        return gm.forward if getattr(fn, attribute) else None

    setattr(fn, attribute, value)
    return fn


def with_globals(text, **names):
    """Return a function of the same code with other globals."""
    code = compile(text, "user_backend.py", "eval").co_consts[0]
    return types.FunctionType(code, {"__builtins__": __builtins__, **names})


def with_builtins(**names):
    builtins = {**(__builtins__ if isinstance(__builtins__, dict) else vars(__builtins__)), **names}
    code = compile("lambda gm, inputs: len(inputs)", "user_backend.py", "eval").co_consts[0]
    return types.FunctionType(code, {"__builtins__": builtins})


def module_named(level):
    module = types.ModuleType("settings")
    module.level = level
    return module


class Holder:
    def __init__(self, value):
        self.value = value

    def __call__(self, gm, inputs):
        return self.value

    def method(self, gm, inputs):
        return self.value


class Reading(Holder):
    """Reads its attribute through a property."""

    @property
    def level(self):
        return self._level

    def __call__(self, gm, inputs):
        return self.level


def reading(level):
    backend = Reading(0)
    vars(backend)["_level"] = level
    return backend


def class_with(**members):
    return type("Backend", (), {"__call__": lambda self, gm, inputs: gm.forward, **members})


class Dynamic:
    def __init__(self, level):
        vars(self)["values"] = (level,)

    def __getattr__(self, name):
        return self.values[0]

    def __call__(self, gm, inputs):
        return self.level


@dataclasses.dataclass(frozen=True)
class Settings:
    level: int
    name: str = dataclasses.field(default="", compare=False)

    def __call__(self, gm, inputs):
        return gm.forward


class Kind(enum.Enum):
    ONE = 1
    TWO = 2


class Number(int):
    pass


class Text(str):
    __slots__ = ()


Named = collections.namedtuple("Named", "level")
Other = collections.namedtuple("Other", "level")


def number_with(attribute):
    number = Number(1)
    number.attribute = attribute
    return number


def partial_with(attribute):
    backend = functools.partial(first)
    backend.attribute = attribute
    return backend


def annotated(annotation):
    def fn(gm, inputs):
        return fn.__annotations__

    fn.__annotations__ = {"gm": annotation}
    return fn


def holding_itself(level):
    backend = Holder(level)
    backend.me = backend
    return backend


def empty_or_filled(n):
    if n:
        value = None
    return lambda gm, inputs: value


def cached(level):
    @functools.lru_cache
    def read():
        return level

    return lambda gm, inputs: read()


def context(level):
    variable = contextvars.ContextVar("level", default=level)
    return lambda gm, inputs: variable.get()


HIDDEN = {
    "what __wrapped__ is": lambda n: wrapping((first, second)[n]),
    "what __wrapped__ of __wrapped__ is": lambda n: wrapping(wrapping((first, second)[n])),
    "a function attribute": lambda n: renamed("level", n + 1),
    "type of a function attribute": lambda n: renamed("level", (1, True)[n]),
    "__name__": lambda n: renamed("__name__", ("a", "b")[n]),
    "__qualname__": lambda n: renamed("__qualname__", ("a", "b")[n]),
    "__doc__": lambda n: renamed("__doc__", ("a", "b")[n]),
    "__module__": lambda n: renamed("__module__", ("a", "b")[n]),
    "an annotation": lambda n: annotated((int, str)[n]),
    "a keyword default": lambda n: functools.partial(renamed("__kwdefaults__", {"level": n}), level=1),
    "a default": lambda n: renamed("__defaults__", (n,)),
    "zeros": lambda n: closing_over((0.0, -0.0)[n]),
    "int or bool": lambda n: closing_over((1, True)[n]),
    "int or float": lambda n: closing_over((1, 1.0)[n]),
    "int or its subclass": lambda n: closing_over((1, Number(1))[n]),
    "str or its subclass": lambda n: closing_over(("a", Text("a"))[n]),
    "str or bytes": lambda n: closing_over(("a", b"a")[n]),
    "attribute of a number": lambda n: closing_over(number_with(n)),
    "tuple or list": lambda n: closing_over(((1,), [1])[n]),
    "tuple or namedtuple": lambda n: closing_over(((1,), Named(1))[n]),
    "two namedtuples": lambda n: closing_over((Named(1), Other(1))[n]),
    "set or frozenset": lambda n: closing_over((frozenset({1}), {1})[n]),
    "type in a frozenset": lambda n: closing_over(frozenset({(1, True)[n]})),
    "complex numbers": lambda n: closing_over(complex(0.0, (0.0, -0.0)[n])),
    "an empty closure variable": lambda n: empty_or_filled(n),
    "globals of the same name": lambda n: with_globals("lambda gm, inputs: LEVEL", LEVEL=n),
    "a global that is absent": lambda n: with_globals("lambda gm, inputs: LEVEL", **({"LEVEL": 1} if n else {})),
    "globals read by globals()": lambda n: with_globals("lambda gm, inputs: globals()['LEVEL']", LEVEL=n),
    "globals read by eval": lambda n: with_globals("lambda gm, inputs: eval('LEVEL')", LEVEL=n),
    "globals of a nested function": lambda n: with_globals("lambda gm, inputs: (lambda: LEVEL)()", LEVEL=n),
    "a function's globals": lambda n: closing_over(with_globals("lambda gm, inputs: LEVEL", LEVEL=n)),
    "builtins": lambda n: with_builtins(len=(len, sum)[n]),
    "attribute of a global module": lambda n: with_globals("lambda gm, inputs: m.level", m=module_named(n)),
    "the module": lambda n: closing_over((math, operator)[n]),
    "an attribute": lambda n: Holder(n),
    "an attribute of a method's object": lambda n: Holder(n).method,
    "the method": lambda n: (Holder(1).method, Holder(1).__call__)[n],
    "an attribute behind a property": reading,
    "an attribute behind __getattr__": Dynamic,
    "a class attribute": lambda n: class_with(level=n)(),
    "a method of the class": lambda n: class_with(read=(first, second)[n])(),
    "the class": lambda n: (Holder, Reading)[n](1),
    "a field that == leaves out": lambda n: Settings(1, ("a", "b")[n]),
    "an object that holds itself": holding_itself,
    "enum members": lambda n: closing_over((Kind.ONE, Kind.TWO)[n]),
    "classes": lambda n: closing_over((Named, Other)[n]),
    "a builtin's object": lambda n: ([].append, [].append)[n],
    "an argument of a partial": lambda n: functools.partial(first, n),
    "keyword or argument of a partial": lambda n: (functools.partial(first, 1), functools.partial(first, gm=1))[n],
    "order of a partial's options": lambda n: functools.partial(first, options=({"a": 1, "b": 2}, {"b": 2, "a": 1})[n]),
    "attribute of a partial": lambda n: partial_with(n),
    "functions of a partial": lambda n: functools.partial((first, second)[n]),
    "dtypes": lambda n: closing_over((torch.float16, torch.bfloat16)[n]),
    "devices": lambda n: closing_over((torch.device("cpu"), torch.device("cpu", 0))[n]),
    "tensors": lambda n: closing_over((torch.zeros(1), torch.ones(1))[n]),
    "weak references": lambda n: closing_over(weakref.ref((first, second)[n])),
    "what a cached function closes over": cached,
    "a context variable": context,
    "slices": lambda n: closing_over((slice(1), slice(2))[n]),
    "ranges": lambda n: closing_over((range(1), range(2))[n]),
}


@pytest.mark.parametrize("name", HIDDEN)
@pytest.mark.filterwarnings("ignore::dynx.errors.DynxWarning")
def test_backends_that_differ_in_a_hidden_way_share_nothing(name):
    backends = HIDDEN[name](0), HIDDEN[name](1)
    assert keyed(backends[0]) is not keyed(backends[1])
    assert keyed(backends[0]) is keyed(backends[0])


def test_there_are_enough_pairs():
    assert len(HIDDEN) >= 40
