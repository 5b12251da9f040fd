"""would_recompile says what then happens, and changes nothing."""

from __future__ import annotations

import cProfile
import gc
import random
import re
import sys
import weakref

import pytest
import torch

import dynx
from dynx import guards
from dynx.errors import UsageError

pytestmark = pytest.mark.filterwarnings("ignore:.* reached recompile_limit:dynx.errors.DynxWarning")


class Counting:
    """A backend that counts what it compiles."""

    def __init__(self):
        self.compiled = 0

    def __call__(self, gm, inputs):
        self.compiled += 1
        return gm.forward


class Config:
    def __init__(self, scale):
        self.scale = scale


SCALE = 2


def arithmetic(x, n=1, *rest, k=2, **more):
    return x * n * k * SCALE + len(rest) + sum(more.values())


def of_a_list(x, items=(), config=None):
    return x + sum(items) if config is None else x * config.scale


def of_a_closure(step):
    def stepped(x, n=1):
        return x * step[0] + n

    return stepped


STEP = [1]
FUNCTIONS = {"arithmetic": arithmetic, "of_a_list": of_a_list, "of_a_closure": of_a_closure(STEP)}
TENSORS = (
    torch.ones(3),
    torch.ones(4),
    torch.ones(2, 3),
    torch.ones(3, dtype=torch.float64),
    torch.ones(3, requires_grad=True),
    torch.ones(3, dtype=torch.int64),
    torch.ones(6)[::2],
    torch.nn.Parameter(torch.ones(3)),
)
CONFIGS = (Config(2), Config(3), None)


def random_call(chance, name):
    x = chance.choice(TENSORS)
    if name == "arithmetic":
        args = chance.choice([(x,), (x, 2), (x, 3), (x, 2, 5), (x, 2.5)])
        return args, chance.choice([{}, {"k": 3}, {"a": 1}, {"k": 2, "b": 4}])
    if name == "of_a_list":
        return (x,), chance.choice(
            [{}, {"items": [1]}, {"items": [1, 2]}, {"items": (1, 2)}, {"config": chance.choice(CONFIGS)}]
        )
    return (x,), chance.choice([{}, {"n": 2}, {"n": True}])


def change_something(chance, compiled):
    """What may happen between two calls."""
    kind = chance.randrange(20)
    if kind == 0:
        torch._dynamo.reset()
    elif kind == 1:
        globals()["SCALE"] = chance.choice([2, 3])
    elif kind == 2:
        STEP[0] = chance.choice([1, 2])
    elif kind == 3:
        CONFIGS[0].scale = chance.choice([2, 4])
    elif kind == 4:
        guards.reset(compiled)
    elif kind == 5 and (entries := guards.inspect(compiled).entries):
        guards.evict(chance.choice(entries))


@pytest.mark.parametrize("compile", [torch.compile, dynx.compile], ids=["torch", "dynx"])
@pytest.mark.parametrize("seed", range(6))
def test_it_says_what_then_happens(compile, seed):
    chance = random.Random(seed)
    name = sorted(FUNCTIONS)[seed % 3]
    outcomes = {"hit": 0, "compile": 0, "recompile": 0, "eager": 0}
    for dynamic in (False, None):
        counting = Counting()
        key = {"key": object()} if compile is dynx.compile else {}
        compiled = compile(FUNCTIONS[name], backend=counting, dynamic=dynamic, **key)
        torch._dynamo.reset()
        calls = [random_call(chance, name) for _ in range(5)]
        for _ in range(45):
            change_something(chance, compiled)
            args, kwargs = chance.choice(calls) if chance.random() < 0.8 else random_call(chance, name)
            with torch.set_grad_enabled(chance.random() < 0.9):
                said = dynx.would_recompile(compiled, *args, **kwargs)
                before = counting.compiled
                compiled(*args, **kwargs)
            outcomes[said.outcome] += 1
            assert bool(said) == (counting.compiled > before), (name, said, args, kwargs)
            assert bool(said.reasons) or said.outcome != "recompile"
            assert all(each.kind != "other" for each in said.reasons), said.reasons
    assert min(outcomes["hit"], outcomes["recompile"]) >= 5, outcomes


def test_nothing_runs_and_nothing_changes():
    ran = []

    def function(x):
        ran.append(1)
        return x + 1

    counting = Counting()
    compiled = torch.compile(function, backend=counting, dynamic=False)
    assert dynx.would_recompile(compiled, torch.ones(3)).outcome == "compile"
    assert (ran, counting.compiled) == ([], 0)
    compiled(torch.ones(3))
    ran.clear()
    for size in (3, 4, 3, 5):
        dynx.would_recompile(compiled, torch.ones(size))
    assert (ran, counting.compiled) == ([], 1)
    compiled(torch.ones(3))
    assert counting.compiled == 1


def test_reasons_are_those_of_the_recompile():
    compiled = torch.compile(arithmetic, backend="eager", dynamic=False)
    with dynx.watch() as seen:
        compiled(torch.ones(3))
        said = dynx.would_recompile(compiled, torch.ones(4), 2)
        compiled(torch.ones(4), 2)
    (recompile,) = seen.recompiles
    facts = [(each.kind, each.source, each.expected, each.got, each.against, each.location.line) for each in said.reasons]
    assert facts == [
        (each.kind, each.source, each.expected, each.got, each.against, each.location.line) for each in recompile.reasons
    ]


def test_backends_and_configurations_are_respected():
    function = lambda x: x + 1  # noqa: E731 - a function of this test alone
    first, second = Counting(), Counting()
    x = torch.ones(3)
    torch.compile(function, backend=first)(x)
    assert dynx.would_recompile(torch.compile(function, backend=first), x).hit
    assert dynx.would_recompile(torch.compile(function, backend=second), x)
    compiled = dynx.compile(function, backend=first, key="respected")
    compiled(x)
    assert dynx.would_recompile(compiled, x).hit
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        assert dynx.would_recompile(compiled, x)
    assert dynx.would_recompile(compiled, x).hit


def test_stances():
    compiled = torch.compile(lambda x: x + 1, backend="eager", dynamic=False)
    compiled(torch.ones(3))

    def said(size):
        verdict = dynx.would_recompile(compiled, torch.ones(size))
        return verdict.outcome, verdict.why, len(verdict.reasons)

    with torch.compiler.set_stance("force_eager"):
        assert said(3) == ("eager", "the stance 'force_eager'", 0)
    with torch.compiler.set_stance("eager_on_recompile"):
        assert said(3) == ("hit", None, 0)
        assert said(4) == ("eager", "the stance 'eager_on_recompile' compiles nothing", 1)
    with torch.compiler.set_stance("fail_on_recompile"):
        assert said(3) == ("hit", None, 0)
        assert said(4) == ("recompile", "the stance 'fail_on_recompile' raises instead", 1)
        with pytest.raises(RuntimeError, match="Detected recompile"):
            compiled(torch.ones(4))
    switched_off = dynx.would_recompile(torch.compiler.disable(compiled), torch.ones(3))
    assert (switched_off.outcome, switched_off.why) == ("eager", "torch.compiler.disable")


def test_an_earlier_failure_is_told():
    def picky(x, each):
        return x + each[0]

    torch._dynamo.reset()
    compiled = torch.compile(picky, backend="eager", dynamic=False)
    with pytest.raises(TypeError):
        compiled(torch.ones(3), [object()])
    said = dynx.would_recompile(compiled, torch.ones(3), [1])
    assert said.outcome == "eager"  # for good
    assert said.why == "torch gave it up at an earlier call; dynx.guards.reset(function) has it try again"
    guards.reset(compiled)
    assert dynx.would_recompile(compiled, torch.ones(3), [1]).outcome == "compile"


def test_a_limit_that_raises():
    compiled = torch.compile(lambda x, n: x * n, backend="eager", dynamic=False, fullgraph=True)
    with torch._dynamo.config.patch(recompile_limit=1):
        compiled(torch.ones(3), 2)
        said = dynx.would_recompile(compiled, torch.ones(3), 3)
        assert said.why.endswith("is reached; the call raises, since fullgraph=True or fail_on_recompile_limit_hit is set")
        with pytest.raises(torch._dynamo.exc.FailOnRecompileLimitHit):
            compiled(torch.ones(3), 3)


@pytest.mark.parametrize("compile", [torch.compile, dynx.compile], ids=["torch", "dynx"])
def test_the_limit_of_recompiles(compile):
    counting = Counting()
    key = {"key": object()} if compile is dynx.compile else {}
    compiled = compile(lambda x, n: x * n, backend=counting, dynamic=False, **key)
    with torch._dynamo.config.patch(recompile_limit=3):
        for n in range(2, 5):
            assert dynx.would_recompile(compiled, torch.ones(3), n)
            compiled(torch.ones(3), n)
        said = dynx.would_recompile(compiled, torch.ones(3), 5)
        assert (said.outcome, said.why) == ("eager", "torch._dynamo.config.recompile_limit is reached")
        compiled(torch.ones(3), 5)
        assert counting.compiled == 3
        assert dynx.would_recompile(compiled, torch.ones(3), 2).hit
        said = dynx.would_recompile(compiled, torch.ones(3), 6)
        assert (said.outcome, said.why, len(said.reasons)) == ("eager", "torch._dynamo.config.recompile_limit is reached", 3)


def test_a_limit_of_its_own():
    compiled = dynx.compile(lambda x, n: x * n, backend="eager", dynamic=False, per_backend_limit=2)
    for n in (2, 3):
        compiled(torch.ones(3), n)
    assert dynx.would_recompile(compiled, torch.ones(3), 4).outcome == "eager"


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x, scale=1):
        return self.linear(x) * scale


@pytest.mark.parametrize("compile", [torch.compile, dynx.compile], ids=["torch", "dynx"])
@pytest.mark.parametrize("make", [Net, lambda: torch.nn.Linear(3, 3)], ids=["own", "built in"])
def test_modules(compile, make):
    compiled = compile(make(), backend="eager", dynamic=False)
    assert dynx.would_recompile(compiled, torch.ones(2, 3)).outcome == "compile"
    compiled(torch.ones(2, 3))
    assert dynx.would_recompile(compiled, torch.ones(2, 3)).hit
    (reason,) = dynx.would_recompile(compiled, torch.ones(5, 3)).reasons
    assert (reason.expected, reason.got) == ("2", "5")


def test_a_module_compiled_in_place():
    net = Net()
    net.compile(backend="eager", dynamic=False)
    assert dynx.would_recompile(net, torch.ones(2, 3)).outcome == "compile"
    net(torch.ones(2, 3))
    assert dynx.would_recompile(net, torch.ones(2, 3)).hit
    assert dynx.would_recompile(net, torch.ones(2, 3), scale=2)


def test_what_hooks_do_is_not_foretold():
    net = Net()
    net.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    compiled = torch.compile(net, backend="eager")
    said = dynx.would_recompile(compiled, torch.ones(2, 3))
    assert (said.outcome, said.why) == ("unknown", "forward pre-hooks of Net may change the arguments")


class Decorated(torch.nn.Module):
    @torch.compile(backend="eager", dynamic=False)
    def forward(self, x):
        return x + 1

    @dynx.compile(backend="eager", dynamic=False)
    def step(self, x, n=1):
        return x * n


def test_methods_that_were_compiled_where_they_are_written():
    torch._dynamo.reset()
    net = Decorated()
    for compiled in (net, net.forward, net.step):
        assert dynx.would_recompile(compiled, torch.ones(3)).outcome == "compile" or compiled == net.forward
        compiled(torch.ones(3))
        assert dynx.would_recompile(compiled, torch.ones(3)).hit
        (reason,) = dynx.would_recompile(compiled, torch.ones(4)).reasons
        assert (reason.expected, reason.got) == ("3", "4")
        assert len(guards.inspect(compiled).entries) == 1
        assert guards.profile(compiled, torch.ones(3)).frames[0].size > 5
        with guards.count_hits(compiled) as hits:
            compiled(torch.ones(3))
        assert sum(hits.values()) == 1
    guards.reset(net.step)
    assert guards.inspect(Decorated.step).entries == ()
    assert dynx.compile(net.step, backend="eager")(torch.ones(3), n=2).sum().item() == 6
    net.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    assert dynx.would_recompile(net, torch.ones(3)).outcome == "unknown"


def test_the_rest_of_a_function_is_named_as_unknown(broken):
    compiled = torch.compile(broken, backend="eager")
    compiled(torch.ones(3))
    said = dynx.would_recompile(compiled, torch.ones(3))
    assert said.hit
    (rest,) = said.unknown
    assert repr(said) == f"<Verdict: hit {said.entry}; not known: {rest}>"
    assert re.fullmatch(r"the rest of .*broken after line \d+, and what is called there", rest)


def test_a_generator_runs_later():
    def numbers(x):
        yield x + 1

    said = dynx.would_recompile(torch.compile(numbers, backend="eager"), torch.ones(3))
    why = "the body of a generator or coroutine runs after the call, when it is iterated or awaited"
    assert (said.outcome, said.why) == ("unknown", why)


def test_a_change_of_configuration_is_told_of_what_nobody_watched():
    compiled = dynx.compile(lambda x: x + 1, backend="eager")
    compiled(torch.ones(3))
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        said = dynx.would_recompile(compiled, torch.ones(3))
        with guards.recompiles() as log:
            compiled(torch.ones(3))
    assert said.outcome == "recompile"
    for (reason,) in (said.reasons, log[0].reasons):
        assert (reason.source, reason.expected, reason.got) == ("torch._dynamo.config.capture_scalar_outputs", "False", "True")
    assert dynx.would_recompile(compiled, torch.ones(3)).hit


def test_what_does_not_fit_is_told():
    def plain(x):
        return x

    with pytest.raises(UsageError, match="plain is not compiled"):
        dynx.would_recompile(plain, torch.ones(3))
    with pytest.raises(UsageError, match="is not compiled"):
        dynx.would_recompile(3)
    compiled = torch.compile(arithmetic, backend="eager")
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        dynx.would_recompile(compiled)
    compiled(torch.ones(3))
    assert dynx.would_recompile(compiled, torch.ones(3)).hit


def test_profilers_and_tracers_stay():
    compiled = torch.compile(lambda x: x + 1, backend="eager", dynamic=False)
    compiled(torch.ones(3))
    seen = []

    def profile(frame, event, argument):
        seen.append(event)

    before = sys.gettrace()
    sys.setprofile(profile)
    try:
        assert dynx.would_recompile(compiled, torch.ones(3)).hit
        assert dynx.would_recompile(compiled, torch.ones(4))
        assert sys.getprofile() is profile
    finally:
        sys.setprofile(None)
    assert sys.gettrace() is before
    profiler = cProfile.Profile()
    with profiler:
        assert dynx.would_recompile(compiled, torch.ones(3)).hit
        assert dynx.would_recompile(compiled, torch.ones(4))
    assert profiler.getstats()


def test_nothing_is_kept_alive():
    compiled = torch.compile(lambda x: x + 1, backend="eager", dynamic=False)
    compiled(torch.ones(3))
    fits, does_not = torch.ones(3), torch.ones(4)
    dynx.would_recompile(compiled, fits)
    dynx.would_recompile(compiled, does_not)
    gone = [weakref.ref(fits), weakref.ref(does_not)]
    counts = sys.getrefcount(fits), sys.getrefcount(does_not)
    for _ in range(20):
        dynx.would_recompile(compiled, fits)
        dynx.would_recompile(compiled, does_not)
    assert (sys.getrefcount(fits), sys.getrefcount(does_not)) == counts
    del fits, does_not
    gc.collect()
    assert [each() for each in gone] == [None, None]
