"""State that functions and modules of torch hold: in arguments, closures, defaults, wrappers, caches, hooks."""

from __future__ import annotations

import functools

import torch
from torch import nn

from support.ways_to_hold_state.kinds import way


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
