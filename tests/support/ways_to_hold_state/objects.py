"""State that objects hold which need care to copy: thread locals, context variables, numbers, weak references."""

from __future__ import annotations

import contextvars
import threading
import types
import weakref
from typing import Any

import torch

from support.ways_to_hold_state.kinds import way

setting: contextvars.ContextVar[Any] = contextvars.ContextVar("setting")


@way
def attribute_of_an_object(mutate, state):
    holder = types.SimpleNamespace(kept=state)

    def f(x):
        mutate(holder.kept)
        return x * 2

    return f


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
def view_of_a_dict(mutate, state):
    proxy = types.MappingProxyType({"kept": state})

    def f(x):
        mutate(proxy["kept"])
        return x * 2

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
def array_of_objects(mutate, state):
    import numpy as np

    array = np.empty(1, dtype=object)
    array[0] = state

    def f(x):
        mutate(array[0])
        return x * 2

    return f
