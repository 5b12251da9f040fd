"""`would_recompile` under modes, and for callables around a compiled function: hooks, classes, partials, wrappers."""

from __future__ import annotations

import functools

import pytest
import torch
from support.models import Net
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

import dynx


class Watching(TorchDispatchMode):
    """A mode as users write them, under which torch compiles nothing."""

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        return operator(*args, **(kwargs or {}))


class Infra(Watching):
    @classmethod
    def ignore_compile_internals(cls):
        return True


@pytest.mark.parametrize(("mode", "compiles"), [(Watching, False), (Infra, True), (FakeTensorMode, True)])
def test_would_recompile_under_a_dispatch_mode(count_compiles, mode, compiles):
    compiled = torch.compile(lambda x: x + 1, backend=count_compiles, dynamic=False)
    compiled(torch.ones(3))
    with mode() as active:
        x = active.from_tensor(torch.ones(4)) if mode is FakeTensorMode else torch.ones(4)
        verdict = dynx.would_recompile(compiled, x)
        compiled(x)
    assert (verdict.outcome == "recompile") == compiles == (count_compiles.count == 2)
    assert compiles or verdict.why == "a TorchDispatchMode is active: torch does not compile under it"


def test_would_recompile_knows_torch_dynamo_config_disable():
    compiled = torch.compile(lambda x: x + 1, backend="eager", dynamic=False)
    with torch._dynamo.config.patch(disable=True):
        verdict = dynx.would_recompile(compiled, torch.ones(3))
    assert (verdict.outcome, verdict.why) == ("eager", "torch._dynamo.config.disable is set")


def test_would_recompile_names_the_forward_hooks_that_it_cannot_predict(count_compiles):
    """torch compiles a hook by itself, when it is called."""
    net = Net()
    compiled = torch.compile(net, backend=count_compiles)
    compiled(torch.ones(2, 3))

    def doubled(module, args, output):
        return output * 2

    net.register_forward_hook(doubled)
    verdict = dynx.would_recompile(compiled, torch.ones(2, 3))
    assert verdict.hit
    assert [each.rpartition(".")[2] for each in verdict.unknown] == ["doubled"]
    compiled(torch.ones(2, 3))
    assert count_compiles.count == 2


def compiled_class(base):
    class Made(base):
        def forward(self, x):
            return x * 2

        if base is object:
            __call__ = forward

    return torch.compile(Made, backend="eager", dynamic=False)


@pytest.mark.parametrize("base", [object, torch.nn.Module])
def test_would_recompile_accepts_instances_of_a_compiled_class(base):
    instance = compiled_class(base)()
    assert dynx.would_recompile(instance, torch.ones(3)).outcome == "compile"
    instance(torch.ones(3))
    assert dynx.would_recompile(instance, torch.ones(3)).hit
    assert dynx.would_recompile(instance, torch.ones(4)).outcome == "recompile"


def test_would_recompile_accepts_partials_of_compiled_functions():
    compiled = torch.compile(lambda x, n, k=1: x * n * k, backend="eager", dynamic=False)
    compiled(torch.ones(3), 2, k=3)
    assert dynx.would_recompile(functools.partial(functools.partial(compiled, torch.ones(3)), k=3), 2).hit
    assert not dynx.would_recompile(functools.partial(compiled, n=3), torch.ones(3), k=3).hit


@pytest.mark.parametrize("wrap", [torch.no_grad(), lambda f: functools.wraps(f)(lambda x: f(x))], ids=["no_grad", "wraps"])
def test_would_recompile_returns_unknown_for_wrappers_of_compiled_functions(wrap):
    """Their code runs first, and decides which arguments and which state the compiled function gets."""
    wrapper = wrap(torch.compile(lambda x: x + 1, backend="eager"))
    verdict = dynx.would_recompile(wrapper, torch.ones(3))
    assert verdict.outcome == "unknown"
    assert "is a wrapper, whose code runs before the compiled function that it wraps" in verdict.why


def test_would_recompile_names_what_torch_may_compile_besides_a_function_that_runs_eagerly(count_compiles):
    """At its recompile limit torch skips the frame of `forward`; it compiles a hook by itself."""
    net = Net()
    compiled = torch.compile(net, backend=count_compiles, dynamic=False)

    def doubled(module, args, output):
        return output * 2

    with torch._dynamo.config.patch(recompile_limit=1):
        for size in (2, 4):
            compiled(torch.ones(size, 3))
        net.register_forward_hook(doubled)
        before = count_compiles.count
        verdict = dynx.would_recompile(compiled, torch.ones(5, 3))
        compiled(torch.ones(5, 3))
    assert verdict.outcome == "eager"
    callees, hook = verdict.unknown
    assert callees.startswith("the functions that ")
    assert hook.endswith("doubled")
    assert count_compiles.count > before, "the hook is compiled by itself"
