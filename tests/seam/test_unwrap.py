"""`unwrap` finds the code that runs when a callable is called, behind decorators, partials and torch.compile."""

from __future__ import annotations

import functools

import pytest
import torch

import dynx
from dynx._torch.compilation.unwrap import code_of, function_of, unwrap


def add(x):
    return x + 1


class Net(torch.nn.Module):
    def forward(self, x):
        return x + 2


class Object:
    def method(self, x):
        return x + 3

    @torch.no_grad()
    def decorated(self, x):
        return x + 4

    @staticmethod
    def static(x):
        return x + 5

    def __call__(self, x):
        return x + 6


class Decorator:
    """A decorator that is written as a class."""

    def __init__(self, fn):
        functools.update_wrapper(self, fn)
        self.fn = fn

    def __call__(self, x):
        return self.fn(x)


def passed_on(fn):
    @functools.wraps(fn)
    def wrapper(x):
        return fn(x)

    return wrapper


def compiled_in_place():
    net = Net()
    net.compile(backend="eager")
    return net


eager = functools.partial(torch.compile, backend="eager")
with_dynx = functools.partial(dynx.compile, backend="eager")
CALLABLES = {
    "function": (lambda: add, add, []),
    "method": (lambda: Object().method, Object.method, ["method"]),
    "decorated method": (lambda: Object().decorated, Object.decorated.__wrapped__, ["method", "decorator"]),
    "static method": (lambda: Object.__dict__["static"], Object.static, ["descriptor"]),
    "callable object": (Object, Object.__call__, []),
    "partial": (lambda: functools.partial(add, 1), add, ["partial"]),
    "partial of a method": (lambda: functools.partial(Object().method), Object.method, ["partial", "method"]),
    "functools.wraps": (lambda: passed_on(add), add, ["decorator"]),
    "lru_cache": (lambda: functools.lru_cache(add), add, ["decorator"]),
    "torch.no_grad": (lambda: torch.no_grad()(add), add, ["decorator"]),
    "decorator class": (lambda: Decorator(add), add, ["decorator"]),
    "module": (Net, Net.forward, []),
    "module compiled in place": (compiled_in_place, Net.forward, []),
    "torch.compile of a module": (lambda: eager(Net()), Net.forward, ["compiled"]),
    "dynx.compile of a module": (lambda: with_dynx(Net()), Net.forward, ["compiled"]),
    "torch.compile": (lambda: eager(add), add, ["compiled"]),
    "torch.compile twice": (lambda: eager(eager(add)), add, ["compiled"]),
    "dynx.compile": (lambda: with_dynx(add), add, ["compiled"]),
    "torch.compile of a method": (lambda: eager(Object().method), Object.method, ["compiled", "method"]),
    "torch.compile of an object": (lambda: eager(Object()), Object.__call__, ["compiled", "decorator"]),
    "torch.compile of a partial": (lambda: eager(functools.partial(add)), add, ["compiled", "decorator", "partial"]),
    "partial of torch.compile": (lambda: functools.partial(eager(add)), add, ["partial", "compiled"]),
    "functools.wraps of torch.compile": (lambda: passed_on(eager(add)), add, ["decorator", "compiled"]),
    "torch.compiler.disable": (lambda: torch.compiler.disable(add), add, ["compiled"]),
}


@pytest.mark.parametrize("name", CALLABLES)
def test_unwrap_finds_the_innermost_function_and_its_wrappers(name):
    build, function, wrappers = CALLABLES[name]
    unwrapped = unwrap(build())
    assert unwrapped.function is function
    assert unwrapped.code is function.__code__
    assert [layer.wraps_by for layer in unwrapped.layers] == [*wrappers, None]


@pytest.mark.parametrize("name", CALLABLES)
def test_unwrap_is_compiled_only_if_the_call_itself_runs_compiled_code(name):
    """A wrapper around a compiled function runs its own code first: it has no cache entries of its own."""
    is_compiled = name.startswith(("torch.compile", "dynx.compile", "module compiled"))
    assert unwrap(CALLABLES[name][0]()).is_compiled == is_compiled


@pytest.mark.parametrize("compiler", [eager, with_dynx], ids=["torch", "dynx"])
def test_unwrap_original_is_the_callable_that_was_passed_to_the_compiler(compiler):
    """Compiling a compiled callable compiles its original again: torch does not nest compiled functions."""
    box = Object()
    net = Net()
    assert unwrap(compiler(add)).original is add
    assert unwrap(compiler(box.method)).original == box.method
    assert unwrap(compiler(net)).original == net.forward  # as torch's own innermost_fn
    assert unwrap(add).original is add
    assert unwrap(passed_on(compiler(add))).original.__name__ == "add"
    assert unwrap(passed_on(compiler(add))).original.__code__ is not add.__code__


def test_unwrap_keeps_the_self_of_a_bound_method_whose_function_is_compiled():
    class Compiled:
        @eager
        def method(self, x):
            return x + 1

    box = Compiled()
    unwrapped = unwrap(box.method)
    assert unwrapped.bound_self is box
    assert unwrapped.original.__self__ is box
    assert unwrapped.compiled is Compiled.method
    assert [layer.wraps_by for layer in unwrapped.layers] == ["method", "compiled", None]


@pytest.mark.parametrize("compiler", [None, eager, with_dynx], ids=["uncompiled", "torch", "dynx"])
def test_unwrap_module_is_the_users_module_instead_of_the_optimized_module(compiler):
    net = Net()
    assert unwrap(net if compiler is None else compiler(net)).module is net
    assert unwrap(net.forward).module is None


def test_unwrap_finds_the_compiled_function_of_a_module():
    net = Net()
    wrapped = eager(net)
    assert unwrap(wrapped).compiled is vars(wrapped)["forward"]
    assert unwrap(net).compiled is None
    net.compile(backend="eager")
    assert unwrap(net).compiled is net._compiled_call_impl


def test_unwrap_through_removes_only_the_named_kinds_of_wrappers():
    """A compiled partial has its own cache entries, although the function of the partial runs."""
    inner = passed_on(add)
    target = eager(functools.partial(inner))
    assert type(unwrap(target).through("compiled", "decorator")) is functools.partial
    assert unwrap(target).through("compiled", "decorator", "partial") is add
    assert unwrap(add).through() is add


@pytest.mark.parametrize(
    "target", [len, Net, Object, None, "text", torch.add], ids=lambda target: getattr(target, "__name__", repr(target))
)
def test_unwrap_of_a_target_without_python_code_has_no_function(target):
    unwrapped = unwrap(target)
    assert unwrapped.function is None
    assert unwrapped.code is None
    assert not unwrapped.is_compiled
    assert [layer.value for layer in unwrapped.layers] == [target]


def test_unwrap_does_not_call_getattr_of_an_object():
    """An object that answers every attribute, as a mock does, would wrap itself forever."""

    class Anything:
        def __getattr__(self, name):
            raise AssertionError(f"{name} was computed")

        def __call__(self, x):
            return x

    assert unwrap(Anything()).function is Anything.__call__


def test_unwrap_ends_on_a_cycle_of_wrapped_attributes():
    def first(): ...
    def second(): ...

    first.__wrapped__, second.__wrapped__ = second, first
    assert [layer.value for layer in unwrap(first).layers] == [first, second]


def test_function_of_a_class_is_the_call_method_of_its_metaclass():
    class Meta(type):
        def __call__(cls): ...

    class Class(metaclass=Meta): ...

    assert function_of(Class) is Meta.__call__


def test_code_of_is_the_code_object_of_a_function_or_method():
    assert code_of(add) is add.__code__
    assert code_of(Object().method) is Object.method.__code__
    assert code_of(len) is code_of(Object()) is None
