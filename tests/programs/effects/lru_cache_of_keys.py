"""Caches that move the key used last to the end: OrderedDict.move_to_end is lost, except for dicts reached from a global."""
import collections
import contextlib

import torch

OrderedDict = collections.OrderedDict


def three(cls=OrderedDict):
    return cls({"a": 1, "b": 2, "c": 3})


class LRU(OrderedDict):
    pass


class Cache:
    entries = three()

    def __init__(self):
        self.mine = three()

    def use(self, key):
        self.mine.move_to_end(key)  # DX801


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.order = three()
        self.linear = torch.nn.Linear(2, 2)

    def forward(self, x):
        self.order.move_to_end("b")  # DX801
        return self.linear(x)


compiled = torch.compile(backend="eager")
everywhere = three()
nested = {"inner": [three()]}
cache = Cache()


@compiled
def argument(cache, x):
    cache.move_to_end("a")  # DX801
    return x + 1


@compiled
def subclass(cache, x):
    cache.move_to_end("a", last=True)  # DX801 [torch>=2.15]
    return x + 2


@compiled
def to_the_front(cache, x):
    cache.move_to_end("c", last=False)  # DX801
    return x + 3


@compiled
def a_global(x):
    everywhere.move_to_end("a")
    return x + 4


@compiled
def in_a_list_in_a_dict(x):
    nested["inner"][0].move_to_end("a")
    return x + 5


@compiled
def in_a_method(cache, x):
    cache.use("a")
    return x + 6


@compiled
def of_a_class(x):
    Cache.entries.move_to_end("b")
    return x + 7


@compiled
def in_a_loop(cache, x):
    for key in ("a", "b"):
        cache.move_to_end(key)  # DX801
        x = x + 1
    return x


@compiled
def under_no_grad(cache, x):
    with torch.no_grad():
        cache.move_to_end("a")  # DX801
        return x + 8


@compiled
def with_a_new_value(cache, x):
    cache["a"] = 7
    cache.move_to_end("a")  # DX801 [torch<2.13], DX801 [torch>=2.15]
    return x + 9


def helper(entries):
    entries.move_to_end("b")  # DX801


@compiled
def in_a_helper(cache, x):
    helper(cache)
    return x + 11


def maker():
    held = three()

    @compiled
    def closure(x):
        held.move_to_end("a")  # DX801
        return x + 12

    return closure


@compiled
def under_a_context(cache, x):
    with contextlib.nullcontext():
        cache.move_to_end("a")  # DX801
    return x + 13


x = torch.ones(2)
argument(three(), x)
subclass(three(LRU), x)
to_the_front(three(), x)
a_global(x)
in_a_list_in_a_dict(x)
in_a_method(cache, x)
of_a_class(x)
in_a_loop(three(), x)
under_no_grad(three(), x)
with_a_new_value(three(), x)
in_a_helper(three(), x)
maker()(x)
under_a_context(three(), x)
torch.compile(Layer(), backend="eager")(x)
