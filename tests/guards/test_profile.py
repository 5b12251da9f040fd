"""`guards.profile`: the time that guards take, and settings with which they take less."""

from __future__ import annotations

import contextlib
import cProfile
import gc
import logging
import sys
import weakref

import pytest
import torch

import dynx
from dynx import guards
from dynx._torch.cache.entries import with_resume_functions
from dynx._torch.cache.guard_tree import tree_of
from dynx.comptime import comptime
from dynx.errors import UsageError
from dynx.guards._cache.entries import raw_of
from dynx.guards._cache.target import codes_of

FILTERS = ("skip_guard_on_inbuilt_nn_modules_unsafe", "skip_guard_on_all_nn_modules_unsafe", "keep_tensor_guards_unsafe")


class Layer(torch.nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.scale = scale

    def forward(self, x):
        return torch.relu(self.linear(x)) * self.scale


class Layers(torch.nn.Module):
    def __init__(self, count=6):
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer(1.0 + i) for i in range(count))

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return x


def compiled_layers(**options):
    torch._dynamo.reset()
    torch.manual_seed(0)
    compiled = torch.compile(Layers(), backend="eager", **options)
    compiled(torch.ones(2, 4))
    return compiled


@pytest.fixture
def without_dict_tags():
    """Turn off dict tags, which torch 2.11 uses by default."""
    with torch._dynamo.config.patch(use_recursive_dict_tags_for_guards=False):
        yield


@pytest.fixture(scope="module")
def costs():
    return guards.profile(compiled_layers(), torch.ones(2, 4))


@pytest.mark.usefixtures("without_dict_tags")
def test_guard_times_in_a_profile_add_up():
    costs = guards.profile(compiled_layers(), torch.ones(2, 4))
    (frame,) = costs.frames
    for _, node in frame.tree.walk():
        assert node.ns == pytest.approx(node.own_ns + sum(child.ns for child in node.children))
    assert frame.tree.ns == pytest.approx(frame.ns, rel=0.5)  # copies against the tree in use; the benchmark bounds it to 15 %
    assert costs.ns == frame.ns
    assert 0 < costs.share < 1


def test_profile_finds_the_most_expensive_guard():
    def guarded(x):
        comptime(lambda ctx: ctx.guard_on(lambda: sum(range(300_000)), name="adds up"))
        return x + 1

    compiled = torch.compile(guarded, backend="eager")
    frame = guards.profile(compiled, torch.ones(3)).frames[0]
    _, slowest = max(frame.tree.walk(), key=lambda item: item[1].own_ns)
    assert "adds up" in [guard.source for guard in slowest.guards]
    assert slowest.own_ns > 0.8 * frame.tree.ns  # not frame.ns, which is another measurement: a busy machine may interrupt it


def test_profile_covers_resume_functions():
    def broken(x):
        y = x + 1
        torch._dynamo.graph_break()
        y = y * 2
        torch._dynamo.graph_break()
        return y - 1

    first = broken.__code__.co_firstlineno
    costs = guards.profile(torch.compile(broken, backend="eager"), torch.ones(3))
    assert [frame.resumes for frame in costs.frames] == [None, first + 2, first + 4]
    assert costs.ns == pytest.approx(sum(frame.ns * frame.times for frame in costs.frames))


@pytest.mark.parametrize("name", FILTERS)
def test_profile_predicts_how_many_guards_a_guard_filter_fn_keeps(name, costs):
    setting = next(setting for setting in costs.settings if setting.name == name)
    filtered = compiled_layers(options={"guard_filter_fn": getattr(torch.compiler, name)})
    assert setting.guards == guards.inspect(filtered).entries[0].size
    assert not setting.is_safe
    assert str(costs.frames[0].size - setting.guards) in setting.misses[0]


def test_profile_does_not_advise_settings_that_miss_changes(costs):
    assert costs.advice == costs.settings[0]
    with pytest.raises(UsageError, match="no cheaper setting is safe"):
        costs.apply()
    with pytest.raises(UsageError, match="guard_filter_fn"):
        costs.apply("keep_tensor_guards_unsafe")
    with pytest.raises(UsageError, match=r"setting 'cheap' is not one of the measured .*\n  valid choices: (?!in use)"):
        costs.apply("cheap")


def roots(compiled):
    trees = [tree_of(entry.guards) for entry in with_resume_functions(codes_of(compiled))]
    return [node.source for tree in trees for node in tree.walk() if node.manager.is_tag_safe_root()]


@pytest.mark.slow
@pytest.mark.usefixtures("without_dict_tags")
def test_dict_tags_setting_applies_to_existing_and_later_cache_entries():
    compiled = compiled_layers()
    costs = guards.profile(compiled, torch.ones(2, 4))
    tags = next(setting for setting in costs.settings if setting.name == "dict tags")
    assert tags.guards == costs.frames[0].size
    assert "module.__class__ = Other" in tags.misses[0]
    assert "closes over" in tags.misses[1]
    assert (len(tags.misses) == 3) == (sys.version_info < (3, 12))
    assert roots(compiled) == []
    with costs.apply("dict tags"):
        assert roots(compiled)
        before = len(roots(compiled))
        compiled(torch.ones(3, 4))
        assert len(guards.inspect(compiled).entries) == 2
        assert len(roots(compiled)) > before
        assert "dict tags" not in [setting.name for setting in guards.profile(compiled, torch.ones(3, 4)).settings]
    assert guards.inspect(compiled).entries == ()  # torch cannot remove a mark
    compiled(torch.ones(2, 4))
    assert roots(compiled) == []


class Negated(torch.nn.Linear):
    def forward(self, x):
        return -super().forward(x)


class Holder(torch.nn.Module):
    """Contains a function with a default and a closure."""

    def __init__(self, scale=2.0):
        super().__init__()
        self.layers = torch.nn.ModuleList([Layer(1.0)])
        self.act = lambda x, by=1: x * scale + by

    def forward(self, x):
        return self.act(self.layers[0](x))


UNNOTICED = {
    "a class assigned": lambda module: setattr(module.layers[0].linear, "__class__", Negated),
    "a cell rebound": lambda module: setattr(module.act.__closure__[0], "cell_contents", 5.0),
    "a default replaced": lambda module: setattr(module.act, "__defaults__", (3,)),
}


@pytest.mark.usefixtures("without_dict_tags")
@pytest.mark.parametrize("name", UNNOTICED)
def test_dict_tags_setting_misses_the_listed_changes(name):
    """torch's default setting notices these changes, so dict tags are not advised."""

    def is_noticed(*, tags):
        torch._dynamo.reset()
        module, x = Holder(), torch.ones(2, 4)
        compiled = torch.compile(module, backend="eager")
        compiled(x)
        marking = guards.profile(compiled, x).apply("dict tags") if tags else contextlib.nullcontext()
        with marking:
            compiled(x), compiled(x)
            UNNOTICED[name](module)
            return torch.equal(compiled(x), module(x))

    assert is_noticed(tags=False) or (name == "a default replaced" and torch.__version__ < (2, 13))  # 2.11 has no guard on it
    assert not is_noticed(tags=True)


@pytest.mark.slow
def test_profile_times_guards_before_the_frame_runs():
    """The resume function appends to a list that it has guards on; after the call the first of these guards would fail."""

    class Collects(Layers):
        def __init__(self, collects):
            super().__init__(20)
            self.collects = collects

        def forward(self, x):
            results = [x]
            torch._dynamo.graph_break()
            for layer in self.layers:
                x = layer(x)
                if self.collects:
                    results.append(x)
            return x, results

    def resume_function(*, collects):
        torch._dynamo.reset()
        return guards.profile(torch.compile(Collects(collects), backend="eager"), torch.ones(2, 4)).frames[1]

    times = [resume_function(collects=False).ns for _ in range(2)]
    assert resume_function(collects=True).ns > min(times) / 2, "a guard that fails at once takes almost no time"


def test_profile_makes_less_than_twenty_calls_and_counts_them_as_hits():
    torch._dynamo.reset()
    calls = []
    compiled = torch.compile(lambda x: x + 1, backend=lambda gm, inputs: lambda *args: calls.append(1) or gm(*args))
    compiled(torch.ones(3))
    with guards.count_hits(compiled) as hits:
        before = len(calls)
        guards.profile(compiled, torch.ones(3))
    assert list(hits.values()) == [len(calls) - before]
    assert len(calls) - before < 20


def after_the_measurement():
    pass


def test_profile_keeps_an_active_cprofile_active():
    profiler = cProfile.Profile()
    compiled = torch.compile(lambda x: x + 1, backend="eager")
    compiled(torch.ones(3))
    profiler.enable()
    guards.profile(compiled, torch.ones(3))
    after_the_measurement()
    profiler.disable()
    assert after_the_measurement.__code__ in [stat.code for stat in profiler.getstats()]


@pytest.mark.usefixtures("without_dict_tags")
def test_removing_dict_tags_of_one_module_keeps_cache_entries_of_others():
    """Modules of torch.nn share one code object; only the entries of the marked module may be removed."""
    torch._dynamo.reset()
    x = torch.ones(2, 4)
    marked = torch.compile(torch.nn.Linear(4, 4), backend="eager")
    unmarked = torch.compile(torch.nn.Sequential(torch.nn.Linear(4, 4)), backend="eager")
    marked(x), unmarked(x)
    with guards.profile(marked, x).apply("dict tags"):
        assert guards.inspect(marked).entries != guards.inspect(unmarked).entries
        assert dynx.would_recompile(marked, x).hit
        assert dynx.would_recompile(unmarked, x).hit
    assert not dynx.would_recompile(marked, x).hit
    assert dynx.would_recompile(unmarked, x).hit


@pytest.mark.slow
@pytest.mark.usefixtures("without_dict_tags")
def test_removing_dict_tags_resets_the_recompile_count():
    compiled = compiled_layers(dynamic=False)
    costs = guards.profile(compiled, torch.ones(2, 4))
    for _ in range(9):  # more than the limit of recompiles
        with costs.apply("dict tags"):
            compiled(torch.ones(2, 4))
    assert dynx.would_recompile(compiled, torch.ones(2, 4)).outcome == "compile"


def test_profile_does_not_change_the_cache(costs):
    compiled = compiled_layers()
    before = guards.inspect(compiled)
    marked = roots(compiled)
    with dynx.watch() as watched:
        profile = guards.profile(compiled, torch.ones(2, 4))
    assert guards.inspect(compiled) == before
    assert profile.frames[0].size == before.entries[0].size
    assert watched.compiles == ()
    assert roots(compiled) == marked


def test_profile_keeps_no_cache_entry_alive():
    compiled = torch.compile(lambda x: x + 1, backend="eager")
    profile = guards.profile(compiled, torch.ones(3))
    manager = weakref.ref(raw_of(guards.inspect(compiled).entries[0]).guards)
    del compiled
    torch._dynamo.reset()
    gc.collect()
    assert manager() is None
    assert profile.frames[0].size > 0


def test_profile_raises_for_calls_without_reusable_compiled_code():
    with pytest.raises(UsageError, match=r"runs no compiled code\n  pass what torch.compile returned"):
        guards.profile(Layers(), torch.ones(2, 4))

    seen = []

    def grows(x):
        seen.append(x)
        return x * len(seen)

    with pytest.raises(UsageError, match=r"every call of .*grows compiles again"):
        guards.profile(torch.compile(grows, backend="eager"), torch.ones(3))

    def fails(x):
        raise ValueError("raised by the call")

    logging.disable(logging.ERROR)
    with pytest.raises(ValueError, match="raised by the call"):
        guards.profile(torch.compile(fails, backend="eager"), torch.ones(3))
    logging.disable(logging.NOTSET)
