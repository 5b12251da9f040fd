"""`would_recompile` predicts what the call does, and changes nothing."""

from __future__ import annotations

import cProfile
import enum
import gc
import operator
import random
import re
import sys
import weakref

import pytest
import torch
from support.models import Net

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


def sums_a_list(x, items=(), config=None):
    return x + sum(items) if config is None else x * config.scale


def with_a_closure(step):
    def stepped(x, n=1):
        return x * step[0] + n

    return stepped


STEP = [1]
FUNCTIONS = {"arithmetic": arithmetic, "sums_a_list": sums_a_list, "with_a_closure": with_a_closure(STEP)}
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


def random_call(rng, name):
    x = rng.choice(TENSORS)
    if name == "arithmetic":
        args = rng.choice([(x,), (x, 2), (x, 3), (x, 2, 5), (x, 2.5)])
        return args, rng.choice([{}, {"k": 3}, {"a": 1}, {"k": 2, "b": 4}])
    if name == "sums_a_list":
        return (x,), rng.choice([{}, {"items": [1]}, {"items": [1, 2]}, {"items": (1, 2)}, {"config": rng.choice(CONFIGS)}])
    return (x,), rng.choice([{}, {"n": 2}, {"n": True}])


def change_something(rng, compiled):
    """At random, change a value that guards depend on, or the cache, or nothing, as may happen between two calls."""
    kind = rng.randrange(20)
    if kind == 0:
        torch._dynamo.reset()
    elif kind == 1:
        globals()["SCALE"] = rng.choice([2, 3])
    elif kind == 2:
        STEP[0] = rng.choice([1, 2])
    elif kind == 3:
        CONFIGS[0].scale = rng.choice([2, 4])
    elif kind == 4:
        guards.reset(compiled)
    elif kind == 5 and (entries := guards.inspect(compiled).entries):
        guards.evict(rng.choice(entries))


@pytest.mark.slow
@pytest.mark.parametrize("compile", [torch.compile, dynx.compile], ids=["torch", "dynx"])
@pytest.mark.parametrize("seed", range(6))
def test_would_recompile_predicts_what_the_call_does(compile, seed):
    rng = random.Random(seed)
    name = sorted(FUNCTIONS)[seed % 3]
    outcomes = {"hit": 0, "compile": 0, "recompile": 0, "eager": 0}
    for dynamic in (False, None):
        counting = Counting()
        key = {"key": object()} if compile is dynx.compile else {}
        compiled = compile(FUNCTIONS[name], backend=counting, dynamic=dynamic, **key)
        torch._dynamo.reset()
        calls = [random_call(rng, name) for _ in range(5)]
        for _ in range(45):
            change_something(rng, compiled)
            args, kwargs = rng.choice(calls) if rng.random() < 0.8 else random_call(rng, name)
            with torch.set_grad_enabled(rng.random() < 0.9):
                verdict = dynx.would_recompile(compiled, *args, **kwargs)
                before = counting.compiled
                compiled(*args, **kwargs)
            outcomes[verdict.outcome] += 1
            assert bool(verdict) == (counting.compiled > before), (name, verdict, args, kwargs)
            assert bool(verdict.reasons) or verdict.outcome != "recompile"
            assert all(reason.kind != "other" for reason in verdict.reasons), verdict.reasons
    assert min(outcomes["hit"], outcomes["recompile"]) >= 5, outcomes


def test_would_recompile_neither_compiles_nor_runs_the_function():
    runs = []

    def function(x):
        runs.append(1)
        return x + 1

    counting = Counting()
    compiled = torch.compile(function, backend=counting, dynamic=False)
    assert dynx.would_recompile(compiled, torch.ones(3)).outcome == "compile"
    assert (runs, counting.compiled) == ([], 0)
    compiled(torch.ones(3))
    runs.clear()
    for size in (3, 4, 3, 5):
        dynx.would_recompile(compiled, torch.ones(size))
    assert (runs, counting.compiled) == ([], 1)
    compiled(torch.ones(3))
    assert counting.compiled == 1


def test_would_recompile_gives_the_reasons_of_the_actual_recompile():
    compiled = torch.compile(arithmetic, backend="eager", dynamic=False)
    with dynx.watch() as watched:
        compiled(torch.ones(3))
        verdict = dynx.would_recompile(compiled, torch.ones(4), 2)
        compiled(torch.ones(4), 2)
    (recompile,) = watched.recompiles
    fields = operator.attrgetter("kind", "source", "expected", "got", "against", "location.line")
    assert list(map(fields, verdict.reasons)) == list(map(fields, recompile.reasons))


def test_would_recompile_depends_on_backend_and_dynamo_config():
    function = lambda x: x + 1  # noqa: E731 - a function that only this test compiles
    first, second = Counting(), Counting()
    x = torch.ones(3)
    torch.compile(function, backend=first)(x)
    assert dynx.would_recompile(torch.compile(function, backend=first), x).hit
    assert dynx.would_recompile(torch.compile(function, backend=second), x)
    compiled = dynx.compile(function, backend=first, key="verdict")
    compiled(x)
    assert dynx.would_recompile(compiled, x).hit
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        assert dynx.would_recompile(compiled, x)
    assert dynx.would_recompile(compiled, x).hit


def test_would_recompile_depends_on_the_compiler_stance():
    compiled = torch.compile(lambda x: x + 1, backend="eager", dynamic=False)
    compiled(torch.ones(3))

    def outcome_of(size):
        verdict = dynx.would_recompile(compiled, torch.ones(size))
        return verdict.outcome, verdict.why, len(verdict.reasons)

    with torch.compiler.set_stance("force_eager"):
        assert outcome_of(3) == ("eager", "the stance 'force_eager'", 0)
    with torch.compiler.set_stance("eager_on_recompile"):
        assert outcome_of(3) == ("hit", None, 0)
        assert outcome_of(4) == ("eager", "the stance 'eager_on_recompile' does not compile", 1)
    with torch.compiler.set_stance("fail_on_recompile"):
        assert outcome_of(3) == ("hit", None, 0)
        assert outcome_of(4) == ("recompile", "the stance 'fail_on_recompile' raises instead", 1)
        with pytest.raises(RuntimeError, match="Detected recompile"):
            compiled(torch.ones(4))
    disabled = dynx.would_recompile(torch.compiler.disable(compiled), torch.ones(3))
    assert (disabled.outcome, disabled.why) == ("eager", "torch.compiler.disable")


def test_would_recompile_reports_that_an_earlier_compilation_failed():
    def adds_first(x, items):
        return x + items[0]

    torch._dynamo.reset()
    compiled = torch.compile(adds_first, backend="eager", dynamic=False)
    with pytest.raises(TypeError):
        compiled(torch.ones(3), [object()])
    verdict = dynx.would_recompile(compiled, torch.ones(3), [1])
    assert verdict.outcome == "eager"  # until it is reset
    assert verdict.why == "torch gave up on it in an earlier call; dynx.guards.reset(fn) makes it try again"
    guards.reset(compiled)
    assert dynx.would_recompile(compiled, torch.ones(3), [1]).outcome == "compile"


def test_would_recompile_says_that_the_call_raises_at_the_recompile_limit():
    compiled = torch.compile(lambda x, n: x * n, backend="eager", dynamic=False, fullgraph=True)
    with torch._dynamo.config.patch(recompile_limit=1):
        compiled(torch.ones(3), 2)
        verdict = dynx.would_recompile(compiled, torch.ones(3), 3)
        assert verdict.why.endswith("is reached; the call raises, since fullgraph=True or fail_on_recompile_limit_hit is set")
        with pytest.raises(torch._dynamo.exc.FailOnRecompileLimitHit):
            compiled(torch.ones(3), 3)


@pytest.mark.parametrize("compile", [torch.compile, dynx.compile], ids=["torch", "dynx"])
def test_would_recompile_returns_eager_at_the_recompile_limit(compile):
    counting = Counting()
    key = {"key": object()} if compile is dynx.compile else {}
    compiled = compile(lambda x, n: x * n, backend=counting, dynamic=False, **key)
    with torch._dynamo.config.patch(recompile_limit=3):
        for n in range(2, 5):
            assert dynx.would_recompile(compiled, torch.ones(3), n)
            compiled(torch.ones(3), n)
        verdict = dynx.would_recompile(compiled, torch.ones(3), 5)
        assert (verdict.outcome, verdict.why) == ("eager", "torch._dynamo.config.recompile_limit is reached")
        compiled(torch.ones(3), 5)
        assert counting.compiled == 3
        assert dynx.would_recompile(compiled, torch.ones(3), 2).hit
        verdict = dynx.would_recompile(compiled, torch.ones(3), 6)
        assert (verdict.outcome, verdict.why, len(verdict.reasons)) == (
            "eager",
            "torch._dynamo.config.recompile_limit is reached",
            3,
        )


def test_would_recompile_returns_eager_at_a_per_backend_limit():
    compiled = dynx.compile(lambda x, n: x * n, backend="eager", dynamic=False, per_backend_limit=2)
    for n in (2, 3):
        compiled(torch.ones(3), n)
    assert dynx.would_recompile(compiled, torch.ones(3), 4).outcome == "eager"


@pytest.mark.parametrize("compile", [torch.compile, dynx.compile], ids=["torch", "dynx"])
@pytest.mark.parametrize("create", [Net, lambda: torch.nn.Linear(3, 3)], ids=["own", "built in"])
def test_would_recompile_accepts_a_compiled_module(compile, create):
    compiled = compile(create(), backend="eager", dynamic=False)
    assert dynx.would_recompile(compiled, torch.ones(2, 3)).outcome == "compile"
    compiled(torch.ones(2, 3))
    assert dynx.would_recompile(compiled, torch.ones(2, 3)).hit
    (reason,) = dynx.would_recompile(compiled, torch.ones(5, 3)).reasons
    assert (reason.expected, reason.got) == ("2", "5")


def test_would_recompile_accepts_a_module_compiled_in_place():
    net = Net()
    net.compile(backend="eager", dynamic=False)
    assert dynx.would_recompile(net, torch.ones(2, 3)).outcome == "compile"
    net(torch.ones(2, 3))
    assert dynx.would_recompile(net, torch.ones(2, 3)).hit
    assert dynx.would_recompile(net, torch.ones(2, 3), scale=2)


def test_forward_pre_hooks_make_would_recompile_return_unknown():
    """Forward pre-hooks may change the arguments, and would_recompile does not run them."""
    net = Net()
    net.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    compiled = torch.compile(net, backend="eager")
    verdict = dynx.would_recompile(compiled, torch.ones(2, 3))
    assert (verdict.outcome, verdict.why) == ("unknown", "forward pre-hooks of Net may change the arguments")


class Decorated(torch.nn.Module):
    @torch.compile(backend="eager", dynamic=False)
    def forward(self, x):
        return x + 1

    @dynx.compile(backend="eager", dynamic=False)
    def step(self, x, n=1):
        return x * n


@pytest.mark.slow
def test_would_recompile_and_inspect_accept_decorated_methods():
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


def test_would_recompile_names_the_resume_function_that_it_cannot_predict(broken):
    compiled = torch.compile(broken, backend="eager")
    compiled(torch.ones(3))
    verdict = dynx.would_recompile(compiled, torch.ones(3))
    assert verdict.hit
    (resume,) = verdict.unknown
    assert repr(verdict) == f"<Verdict: hit {verdict.entry}; not known: {resume}>"
    assert re.fullmatch(r"the resume function of .*broken after line \d+, and the functions it calls", resume)


class Mode(enum.Enum):
    UP = 1
    DOWN = 2


def test_reasons_name_the_enum_member_that_torch_keeps_by_its_address():
    """Outside of `dynx.watch()` too, where nothing described the member when it was compiled."""
    compiled = torch.compile(lambda x, mode: x + 1 if mode is Mode.UP else x - 1, backend="eager")
    compiled(torch.ones(3), Mode.UP)
    (reason,) = dynx.would_recompile(compiled, torch.ones(3), Mode.DOWN).reasons
    assert (reason.expected, reason.got) == ("Mode.UP", "Mode.DOWN")


def test_generators_make_would_recompile_return_unknown():
    def numbers(x):
        yield x + 1

    verdict = dynx.would_recompile(torch.compile(numbers, backend="eager"), torch.ones(3))
    why = "the body of a generator or coroutine runs after the call, when it is iterated or awaited"
    assert (verdict.outcome, verdict.why) == ("unknown", why)


def test_recompile_reasons_name_the_changed_config_without_watch():
    compiled = dynx.compile(lambda x: x + 1, backend="eager")
    compiled(torch.ones(3))
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        verdict = dynx.would_recompile(compiled, torch.ones(3))
        with dynx.watch() as w:
            compiled(torch.ones(3))
    assert verdict.outcome == "recompile"
    for (reason,) in (verdict.reasons, w.recompiles[0].reasons):
        assert (reason.source, reason.expected, reason.got) == ("torch._dynamo.config.capture_scalar_outputs", "False", "True")
    assert dynx.would_recompile(compiled, torch.ones(3)).hit


@pytest.mark.parametrize(
    "value", [arithmetic, Net(), Net, len, "arithmetic", None], ids=["function", "module", "class", "builtin", "str", "None"]
)
def test_would_recompile_raises_for_values_that_are_not_compiled(value):
    with pytest.raises(UsageError, match=r"is not compiled\n  pass what torch.compile or dynx.compile returned for it"):
        dynx.would_recompile(value, torch.ones(3))


def test_would_recompile_raises_for_missing_arguments_as_the_call_does():
    compiled = torch.compile(arithmetic, backend="eager")
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        dynx.would_recompile(compiled)
    compiled(torch.ones(3))
    assert dynx.would_recompile(compiled, torch.ones(3)).hit


def test_would_recompile_keeps_active_profilers_and_tracers():
    compiled = torch.compile(lambda x: x + 1, backend="eager", dynamic=False)
    compiled(torch.ones(3))
    events = []

    def profile(frame, event, argument):
        events.append(event)

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


def test_would_recompile_keeps_no_argument_alive():
    compiled = torch.compile(lambda x: x + 1, backend="eager", dynamic=False)
    compiled(torch.ones(3))
    hit, miss = torch.ones(3), torch.ones(4)
    dynx.would_recompile(compiled, hit)
    dynx.would_recompile(compiled, miss)
    references = [weakref.ref(hit), weakref.ref(miss)]
    counts = sys.getrefcount(hit), sys.getrefcount(miss)
    for _ in range(20):
        dynx.would_recompile(compiled, hit)
        dynx.would_recompile(compiled, miss)
    assert (sys.getrefcount(hit), sys.getrefcount(miss)) == counts
    del hit, miss
    gc.collect()
    assert [reference() for reference in references] == [None, None]
