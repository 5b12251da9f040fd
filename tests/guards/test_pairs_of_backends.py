"""Pairs of `dynx.compile` calls that must share cache entries, because torch shares them or they are equal, or must not."""

from __future__ import annotations

import dataclasses
import functools

import pytest
import torch
from torch._dynamo.backends.registry import register_backend

import dynx

pytestmark = pytest.mark.filterwarnings("ignore::dynx.errors.DynxWarning")
COMPILED: list[str] = []


@register_backend
def counting_backend(gm, inputs, **options):
    COMPILED.append("counted")
    return gm.forward


class Slots:
    __slots__ = ("level", "name")

    def __init__(self, level, name="a"):
        self.level, self.name = level, name

    def __call__(self, gm, inputs):
        return gm.forward


class Child(Slots):
    __slots__ = ("more",)

    def __init__(self, level, more=None):
        super().__init__(level)
        self.more = more


class WithDict(Slots):
    def __init__(self, level, extra=0):
        super().__init__(level)
        self.extra = extra


class Unset(Slots):
    def __init__(self, level, is_set=False):
        self.level = level
        if is_set:
            self.name = None


class CountingSlots(Slots):
    def __call__(self, gm, inputs):
        self.level += 1
        return gm.forward


@dataclasses.dataclass(frozen=True, slots=True)
class Hidden:
    level: int
    note: str = dataclasses.field(default="", compare=False)

    def __call__(self, gm, inputs):
        return gm.forward


def plain(gm, inputs):
    return gm.forward


def imports_inductor(gm, inputs):
    from torch._inductor.compile_fx import compile_fx

    return compile_fx(gm, inputs)


def calls(fn):
    def backend(gm, inputs):
        return fn(gm, inputs)

    return backend


def appends_to(items):
    def backend(gm, inputs):
        items.append(gm)
        return gm.forward

    return backend


def with_settings(settings):
    """Return the arguments of a pair; the second call runs under these settings of inductor."""
    return torch._inductor.config.patch(settings)


KEEP: list = []
SHARED: dict = {
    "no mode or the default mode": lambda n: {"backend": "counting_backend", "mode": (None, "default")[n]},
    "no mode or the default mode of inductor": lambda n: {"mode": (None, "default")[n]},
    "options in another order": lambda n: {"backend": "counting_backend", "options": ({"a": 1, "b": 2}, {"b": 2, "a": 1})[n]},
    "options of inductor in another order": lambda n: {
        "options": ({"max_autotune": False, "epilogue_fusion": True}, {"epilogue_fusion": True, "max_autotune": False})[n]
    },
    "nested options in another order": lambda n: {
        "backend": "counting_backend",
        "options": ({"o": {"a": 1, "b": 2}}, {"o": {"b": 2, "a": 1}})[n],
    },
    "a name of an option with dashes": lambda n: {"options": {("max_autotune", "max-autotune")[n]: False}},
    "a mode and the options that it stands for": lambda n: (
        {"mode": "reduce-overhead"} if n else {"options": dict(torch._inductor.list_mode_options("reduce-overhead"))}
    ),
    "empty options": lambda n: {"backend": "counting_backend", "options": ({}, None)[n]},
    "slots": lambda n: {"backend": Slots(1)},
    "slots of a base class": lambda n: {"backend": Child(1, "b")},
    "slots and a dict": lambda n: {"backend": WithDict(1, 2)},
    "slots without a value": lambda n: {"backend": Unset(1)},
    "a method of an object with slots": lambda n: {"backend": Slots(1).__call__},
}
DIFFERENT: dict = {
    "mode": lambda n: {"mode": (None, "reduce-overhead")[n]},
    "two modes": lambda n: {"mode": ("max-autotune", "reduce-overhead")[n]},
    "mode of a backend that takes it": lambda n: {"backend": "counting_backend", "mode": (None, "reduce-overhead")[n]},
    "options": lambda n: {"backend": "counting_backend", "options": {"a": n}},
    "type of an option": lambda n: {"backend": "counting_backend", "options": {"a": (1, True)[n]}},
    "int or float option": lambda n: {"backend": "counting_backend", "options": {"a": (1, 1.0)[n]}},
    "names of options": lambda n: {"backend": "counting_backend", "options": {"ab"[n]: 1}},
    "one more option": lambda n: {"backend": "counting_backend", "options": ({"a": 1}, {"a": 1, "b": None})[n]},
    "options of inductor": lambda n: {"options": {"max_autotune": (False, True)[n]}},
    "order of a list option": lambda n: {"backend": "counting_backend", "options": {"a": ((1, 2), (2, 1))[n]}},
    "list or tuple option": lambda n: {"backend": "counting_backend", "options": {"a": ((1, 2), [1, 2])[n]}},
    "option that is a dict": lambda n: {"backend": "counting_backend", "options": {"a": ({"b": 1}, {"b": 2})[n]}},
    "guard filters": lambda n: {
        "backend": "eager",
        "options": {
            "guard_filter_fn": (torch.compiler.skip_guard_on_globals_unsafe, torch.compiler.keep_tensor_guards_unsafe)[n]
        },
    },
    "guard filter or none": lambda n: {
        "backend": "eager",
        "options": ({"guard_filter_fn": torch.compiler.keep_tensor_guards_unsafe}, None)[n],
    },
    "names of backends": lambda n: {"backend": ("eager", "aot_eager")[n]},
    "fullgraph": lambda n: {"backend": "eager", "fullgraph": bool(n)},
    "dynamic": lambda n: {"backend": "eager", "dynamic": (None, False)[n]},
    "dynamic of inductor": lambda n: {"dynamic": (None, True)[n]},
    "slots": lambda n: {"backend": Slots(n)},
    "type in a slot": lambda n: {"backend": Slots((1, True)[n])},
    "which slot": lambda n: {"backend": (Slots("a", "b"), Slots("b", "a"))[n]},
    "slot of a subclass": lambda n: {"backend": Child(1, n)},
    "dict beside slots": lambda n: {"backend": WithDict(1, n)},
    "a slot that has no value": lambda n: {"backend": Unset(1, is_set=bool(n))},
    "classes with the same slots": lambda n: {"backend": (Slots(1), Child(1))[n]},
    "list in a slot": lambda n: {"backend": Slots([])},
    "slots that are assigned": lambda n: {"backend": CountingSlots(1)},
    "slot that == leaves out": lambda n: {"backend": Hidden(1, "ab"[n])},
    "a method of objects with slots": lambda n: {"backend": Slots(n).__call__},
}
SETTINGS = {"max_autotune": True, "epilogue_fusion": False}
NEVER_INDUCTOR = {
    "eager": lambda: "eager",
    "eager_noexcept": lambda: "eager_noexcept",
    "a function that returns the graph": lambda: plain,
    "a lambda": lambda: lambda gm, inputs: gm,
    "a function that collects graphs": lambda: appends_to(KEEP),
    "a partial": lambda: functools.partial(plain),
}
MAYBE_INDUCTOR = {
    "inductor": lambda: "inductor",
    "aot_eager": lambda: "aot_eager",  # the partitioner of AOTAutograd reads settings of inductor
    "a registered backend": lambda: "counting_backend",
    "a function that imports inductor": lambda: imports_inductor,
    "a function that calls another": lambda: calls(plain),
    "a function of a library": lambda: torch._dynamo.backends.debugging.aot_eager,
    "an instance": lambda: Slots(1),
}


def backends_of(first, second, settings=None):
    """Return the objects by which torch would compare the backends of two calls of `dynx.compile`."""
    contexts = [dynx.compile(**arguments) for arguments in (first, second)]
    one = contexts[0].backend()
    with torch._inductor.config.patch(settings or {}):
        return one, contexts[1].backend()


@pytest.mark.parametrize("name", SHARED)
def test_equal_calls_of_compile_share_cache_entries(name):
    first, second = backends_of(SHARED[name](0), SHARED[name](1))
    assert first is second


@pytest.mark.parametrize("name", DIFFERENT)
def test_different_calls_of_compile_share_nothing(name):
    first, second = backends_of(DIFFERENT[name](0), DIFFERENT[name](1))
    assert first is not second


def test_there_are_enough_pairs_that_share_nothing():
    assert len(DIFFERENT) >= 20


@pytest.mark.parametrize("name", NEVER_INDUCTOR)
def test_settings_of_inductor_do_not_separate_backends_that_never_use_it(name):
    arguments = {"backend": NEVER_INDUCTOR[name]()}
    first, second = backends_of(arguments, arguments, SETTINGS)
    assert first is second
    for settings in ({"freezing": True}, {"triton.cudagraphs": True}):  # Dynamo itself reads these
        first, second = backends_of(arguments, arguments, settings)
        assert first is not second


@pytest.mark.parametrize("name", MAYBE_INDUCTOR)
def test_settings_of_inductor_separate_backends_that_may_use_it(name):
    arguments = {"backend": MAYBE_INDUCTOR[name]()}
    first, second = backends_of(arguments, arguments, SETTINGS)
    assert first is not second


def test_settings_of_dynamo_separate_every_backend():
    context = dynx.compile(backend="eager")
    first = context.backend()
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        assert context.backend() is not first


def test_a_backend_registered_as_eager_by_the_user_may_use_inductor(monkeypatch):
    from torch._dynamo.backends import registry

    monkeypatch.setitem(registry._COMPILER_FNS, "eager", imports_inductor)
    first, second = backends_of({"backend": "eager"}, {"backend": "eager"}, SETTINGS)
    assert first is not second


@pytest.mark.parametrize("compile", [torch.compile, dynx.compile], ids=["torch", "dynx"])
@pytest.mark.parametrize("name", ["no mode or the default mode", "options in another order", "nested options in another order"])
def test_dynx_compiles_no_more_than_torch(compile, name):
    COMPILED.clear()
    for number in range(2):
        compile(plus_one, **SHARED[name](number))(torch.ones(3))
    assert len(COMPILED) == 1


@pytest.mark.parametrize("compile", [torch.compile, dynx.compile], ids=["torch", "dynx"])
def test_eager_is_not_compiled_again_after_a_setting_of_inductor_changed(compile):
    run = compile(plus_one, backend="eager")
    with dynx.watch() as w:
        run(torch.ones(3))
        with torch._inductor.config.patch(SETTINGS):
            run(torch.ones(3))
            compile(plus_one, backend="eager")(torch.ones(3))
        run(torch.ones(3))
    assert len(w.compiles) == 1


def plus_one(x):
    return x + 1
