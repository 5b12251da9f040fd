"""`pgo.cachediff` names what makes a graph miss the caches of another run: each test changes one thing between two runs."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch._functorch import config as functorch_config
from torch._inductor import config as inductor_config
from torch._inductor.custom_graph_pass import CustomGraphPass

import dynx
from dynx import pgo, symbols
from dynx.errors import BadRunFile
from dynx.records import CacheEvent, CacheKey, KeySettings


@pytest.fixture(autouse=True)
def cache_directory(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))


def recorded(function, *calls, within=nullcontext, profile=None, **options):
    """Compile and call `function` in what stands for a process of its own; return its run and its recorder."""
    torch._dynamo.reset()
    with ExitStack() as stack:
        stack.enter_context(within())
        watch, recorder = stack.enter_context(dynx.watch(detail="full")), stack.enter_context(pgo.record())
        if profile is not None:
            stack.enter_context(profile.apply())
        compiled = torch.compile(function, **options)
        for args in calls:
            compiled(*args)
    torch._dynamo.reset()
    assert watch.troubles == ()
    return watch.run, recorder


def causes(first, second):
    return [(cause.kind, cause.component, cause.before, cause.after) for cause in pgo.cachediff(first[0], second[0])]


def product(x, y):  # no kernel to generate, so that it compiles in little time
    return x @ y


X, Y = torch.ones(4, 4), torch.ones(4, 4)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("caches")))
        return recorded(product, (X, Y))


@contextmanager
def setting(set_value, value, restore):
    set_value(value)
    try:
        yield
    finally:
        set_value(restore)


class NoPass(CustomGraphPass):
    def __call__(self, graph):
        pass

    def uuid(self):
        return "no pass"


INPUTS = {
    "shape": ((torch.ones(6, 4), Y), ("x.shape", "[4, 4]", "[6, 4]")),
    "stride": ((torch.ones(4, 4).t(), Y), ("x.stride", "[4, 1]", "[1, 4]")),
    "requires_grad": ((torch.ones(4, 4, requires_grad=True), Y), ("x.requires_grad", "False", "True")),
    "dtype": ((X.double(), Y.double()), ("x.dtype and 1 more", "torch.float32", "torch.float64")),
}

STATE = {
    "autocast": (lambda: torch.autocast("cpu"), ("torch.autocast", "off", None)),
    "no_grad": (torch.no_grad, ("torch.is_grad_enabled()", "True", "False")),
    "threads": (lambda: setting(torch.set_num_threads, 3, torch.get_num_threads()), ("torch.get_num_threads()", None, "3")),
    "default dtype": (
        lambda: setting(torch.set_default_dtype, torch.float64, torch.float32),
        ("torch.get_default_dtype()", "torch.float32", "torch.float64"),
    ),
    "precision": (
        lambda: setting(partial(setattr, torch.backends.cuda.matmul, "allow_fp16_reduced_precision_reduction"), False, True),
        ("torch.backends.cuda.matmul", None, None),
    ),
    "tag": (
        lambda: torch.compiler.config.patch(cache_key_tag="b"),
        ("torch.compiler.config.cache_key_tag", "''", "'b'"),
    ),
    "custom pass": (
        lambda: inductor_config.patch(post_grad_custom_post_pass=NoPass()),
        ("post_grad_custom_post_pass", "None", "'no pass'"),
    ),
}

SETTINGS = {
    "max_autotune": (
        {"within": lambda: inductor_config.patch(max_autotune=True)},
        ("torch._inductor.config.max_autotune", "False", "True"),
    ),
    "activation_memory_budget": (
        {"within": lambda: functorch_config.patch(activation_memory_budget=0.5)},
        ("torch._functorch.config.activation_memory_budget", "1.0", "0.5"),
    ),
    "option": (
        {"options": {"max_fusion_size": 3}},
        ("torch._inductor.config.max_fusion_size", "64", "3"),
    ),
}


def missing(name):
    """Return whether this torch leaves a part out of its keys."""
    return {"threads": "cpp_runtime_thread_count", "default dtype": "default_dtype"}.get(name)


class TestOneDifference:
    def test_none(self, base):
        again = recorded(product, (X, Y))
        found = pgo.cachediff(base[0], again[0])
        assert found.different == 0
        assert [(cause.component, cause.kind) for cause in found] == [("cache directory", "entry")]  # of another test

    @pytest.mark.parametrize(("args", "expected"), INPUTS.values(), ids=INPUTS)
    def test_input(self, base, args, expected):
        assert causes(base, recorded(product, args)) == [("input", *expected)]

    @pytest.mark.parametrize("name", STATE)
    def test_global_state(self, base, name):
        within, (component, before, after) = STATE[name]
        if missing(name) and not any(missing(name) in key.parts for key in base[0].cache_keys):
            pytest.skip("this torch does not have it in its keys")
        found = [cause for cause in causes(base, recorded(product, (X, Y), within=within)) if cause[1] == component]
        assert len(found) == 1
        assert found[0][0] == "state"
        assert before in (None, found[0][2])
        assert after in (None, found[0][3])

    @pytest.mark.parametrize(("how", "expected"), SETTINGS.values(), ids=SETTINGS)
    def test_setting(self, base, how, expected):
        assert causes(base, recorded(product, (X, Y), **how)) == [("setting", *expected)]

    def test_the_dtype_of_autocast(self, base):
        found = causes(base, recorded(product, (X, Y), within=lambda: torch.autocast("cpu")))
        assert found[0][3] == ("on" if "disable_amp" in base[0].cache_keys[0].parts else "cpu: torch.bfloat16")

    def test_deterministic_algorithms(self, base):
        within = lambda: setting(torch.use_deterministic_algorithms, True, False)  # noqa: E731
        found = causes(base, recorded(product, (X, Y), within=within))
        assert [cause[:2] for cause in found] == [("state", "torch.use_deterministic_algorithms")]

    def test_mode(self, base):
        found = causes(base, recorded(product, (X, Y), mode="max-autotune-no-cudagraphs"))
        assert ("setting", "torch._inductor.config.max_autotune", "False", "True") in found
        assert {kind for kind, *_ in found} == {"setting"}

    def test_dynamic_size(self, base):
        found = causes(base, recorded(product, (X, Y), dynamic=True))
        assert found == [("dynamic size", "x.size(0)", "static", "dynamic")]

    def test_an_unbacked_size(self, base):
        x = torch.ones(4, 4)
        torch._dynamo.decorators.mark_unbacked(x, 0)
        found = causes(base, recorded(product, (x, Y)))
        assert found[0] == ("dynamic size", "x.size(0)", "static", "dynamic")

    def test_closure(self):
        def scaled(by):
            return lambda x, y: torch.addmm(x, x, y, alpha=by)

        found = pgo.cachediff(recorded(scaled(2), (X, Y))[0], recorded(scaled(3), (X, Y))[0])
        assert [cause.kind for cause in found] == ["graph"]
        assert found.causes[0].before.endswith("alpha = 2)")
        assert found.causes[0].after.endswith("alpha = 3)")
        assert found.causes[0].location.line == scaled.__code__.co_firstlineno + 1

    def test_source(self, base):
        def edited(x, y):
            return x @ y.t()

        edited.__code__ = edited.__code__.replace(co_name="product", co_qualname="product")
        found = causes(base, recorded(edited, (X, Y)))
        assert [kind for kind, *_ in found] == ["graph"]
        assert ".t()" in found[0][3]

    def test_a_loop_over_a_size_of_another_shape(self):
        """The graph has another line for each row: the source is unchanged, and not to blame."""

        def rows(x, y):
            for row in range(x.shape[0]):
                y = y @ x[row]
            return y

        found = causes(recorded(rows, (torch.ones(2, 4, 4), Y)), recorded(rows, (torch.ones(3, 4, 4), Y)))
        assert found == [("input", "x.shape", "[2, 4, 4]", "[3, 4, 4]")]

    def test_a_function_that_calls_another_one_now(self):
        """The advice does not name the source of a function whose text is the same."""

        def outer(inner):
            return lambda x, y: inner(x) @ y

        found = pgo.cachediff(recorded(outer(torch.neg), (X, Y))[0], recorded(outer(torch.t), (X, Y))[0])
        assert [cause.kind for cause in found] == ["graph"]
        assert "the text of the function is the same in both runs" in found.causes[0].advice

    @pytest.mark.slow
    def test_train_and_eval(self):
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5))
        with torch.no_grad():
            first = recorded(model.eval(), (X,))
            found = causes(first, recorded(model.train(), (X,)))
        assert [kind for kind, *_ in found] == ["graph"]
        assert "dropout" in found[0][2]

    @pytest.mark.slow
    def test_train_and_eval_with_other_inputs(self):
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
        with torch.no_grad():
            first = recorded(model.eval(), (X,))
            found = causes(first, recorded(model.train(), (X,)))
        assert [kind for kind, *_ in found] == ["graph"]  # of which the counter of batches, a new input, is a consequence
        assert "False" in found[0][2]
        assert "True" in found[0][3]

    def test_a_use_in_another_order(self):
        def function(x, y, *, swapped):
            return (y @ x, x @ y) if swapped else (x @ y, y @ x)

        first = recorded(partial(function, swapped=False), (X, Y.double().float()))
        found = causes(first, recorded(partial(function, swapped=True), (X, Y.double().float())))
        assert [kind for kind, *_ in found] == ["graph"]
        assert "def forward(" not in found[0][2] + found[0][3]

    def test_an_input_that_is_gone(self):
        first = recorded(torch.nn.Linear(4, 4), (X,))
        found = causes(first, recorded(torch.nn.Linear(4, 4, bias=False), (X,)))
        assert [(kind, component.split(".")[-1], after) for kind, component, _, after in found] == [("input", "bias", "absent")]

    def test_frozen_parameters(self):
        first = recorded(torch.nn.Linear(4, 4), (X,))
        found = causes(first, recorded(torch.nn.Linear(4, 4).requires_grad_(False), (X,)))
        assert [cause[2:] for cause in found] == [("True", "False")]
        assert found[0][1].endswith("weight.requires_grad and 1 more")

    def test_another_function(self, base):
        def other(x, y):
            return y @ x @ x

        assert causes(base, recorded(other, (X, Y))) == [
            ("new graph", "graph of TestOneDifference.test_another_function.<locals>.other", "no key", "looked up")
        ]

    @pytest.mark.usefixtures("torch_names")
    def test_scheme_of_names(self):
        def gram(x):
            return x.transpose(1, 2).bmm(x)

        x = torch.ones(2, 5, 6)
        torch._dynamo.maybe_mark_dynamic(x, [1, 2])
        found = pgo.cachediff(recorded(gram, (x,))[0], recorded(gram, (x,), within=symbols.install)[0])
        assert {(cause.kind, cause.rule) for cause in found} == {("symbol name", "DX406")}
        assert [cause.component for cause in found] == ["name of x.size(1)", "name of x.size(2)"]


class TestProfiles:
    """What a size that is marked as dynamic and specialized leaves in the key."""

    @pytest.fixture
    def specialized(self):
        def function(c, y):
            found, z = torch.nonzero(c), y @ y.t()
            for _ in range(c.size(0)):
                z = z @ z
            return z, found.size(0)

        ones = torch.ones
        with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
            calls = ((ones(4), ones(6, 6)), (ones(4), ones(7, 7)), (ones(5), ones(9, 9)))
            yield function, recorded(function, *calls), (ones(4), ones(8, 8))

    def test_a_size_that_was_dynamic_until_a_line_fixed_it(self, specialized):
        """Its graph lacks a runtime assertion that the static one has; that follows from the size, not from the source."""
        function, first, call = specialized
        profile = first[1].profile(prune=False)
        profile = replace(profile, frames=tuple(replace(frame, graphs=()) for frame in profile.frames))  # as torch's own
        found = pgo.cachediff(first[0], recorded(function, call, profile=profile)[0])
        assert [(cause.kind, cause.component, cause.before, cause.after) for cause in found] == [
            ("dynamic size", "c.size(0)", "static", "dynamic, fixed to 4")
        ]
        assert "begin both runs with one profile" in found.causes[0].advice  # the first began without

    def test_both_runs_began_with_a_profile(self, specialized):
        function, first, call = specialized
        profile = first[1].profile(prune=False)
        without = replace(profile, frames=tuple(replace(frame, graphs=()) for frame in profile.frames))
        runs = [recorded(function, call, profile=one)[0] for one in (profile, without)]
        found = pgo.cachediff(*runs)
        assert [(cause.component, cause.after) for cause in found] == [("c.size(0)", "dynamic, fixed to 4")]
        assert found.causes[0].advice.startswith("both runs began with a profile, which did not have this graph: ")

    @pytest.mark.slow
    def test_the_profile_of_torch(self, specialized):
        function, first, call = specialized
        with torch.compiler.config.patch(job_id="job"):
            recorded(function, *((torch.ones(rows), torch.ones(n, n)) for rows, n in ((4, 6), (5, 7))))
            found = pgo.cachediff(first[0], recorded(function, call)[0])
        assert found.causes[0].kind == "dynamic size"
        assert "instead of TORCH_COMPILE_JOB_ID" in found.causes[0].advice

    def test_the_pruned_profile(self, specialized):
        function, first, call = specialized
        second = recorded(function, call, profile=first[1].profile())
        assert not pgo.cachediff(first[0], second[0])
        assert not pgo.cachediff(first[1], second[1])  # recorders do as well

    def test_no_profile(self, specialized):
        function, first, call = specialized
        found = causes(first, recorded(function, call))
        assert found[0][0] in ("dynamic size", "input")
        assert "y" in found[0][1]


class TestHowRunsEnd:
    """Graphs that the first run has not stored, or that no run can store."""

    @pytest.mark.slow
    def test_a_bypassed_cache(self, base):
        def chosen(x):
            return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))

        first = recorded(chosen, (X,))
        found = pgo.cachediff(first[0], recorded(chosen, (X,))[0])
        bypassed = [cause for cause in found if cause.kind == "bypass"]
        events = [event for event in first[0].caches if event.result == "bypass"]
        assert len(bypassed) == len({event.cache for event in events})
        assert {cause.rule for cause in bypassed} <= {"DX401", "DX402"}

    def test_every_graph_is_bypassed(self):
        run = dynx.Run((CacheEvent("aot_autograd", "bypass", 0, "0/0", None, reason="Unsupported operation"),))
        found = pgo.cachediff(run, run)
        assert [(cause.kind, cause.component, cause.before, cause.rule) for cause in found] == [
            ("bypass", "AOTAutograd cache", "Unsupported operation", "DX402")
        ]
        assert not found.problem

    def test_a_graph_that_was_not_stored_in_time(self, base):
        def other(x, y):
            return y @ x @ x

        killed = replace(base[0], end={})
        (new,) = pgo.cachediff(killed, recorded(other, (X, Y))[0])
        (lost,) = pgo.cachediff(killed, base[0])
        assert new.advice == lost.advice
        assert "killed" in new.advice

    def test_the_graphs_of_a_key_that_was_found(self, base):
        found = replace(base[0], events=tuple(_found_in_aot_autograd(base[0])))
        assert not pgo.cachediff(base[0], found)

    def test_settings_lost_with_their_line(self, base):
        second = recorded(product, (X, Y), within=lambda: inductor_config.patch(max_autotune=True))[0]
        damaged = replace(second, events=tuple(event for event in second.events if not isinstance(event, KeySettings)))
        assert causes(base, (damaged,)) == [("setting", "torch's configuration", "known", "missing in the run file")]


def _found_in_aot_autograd(run):
    """Yield the events of a run whose graph is in the AOTAutograd cache, but not under its key of inductor."""
    for event in run.events:
        if isinstance(event, CacheEvent):
            event = replace(event, result="hit")
        elif isinstance(event, CacheKey) and event.cache == "fx_graph":
            event = replace(event, digest="another", parts=event.parts | {"gm": "another"})
        yield event


def with_results(run, result):
    """Return a run in which each lookup had another result."""
    events = (replace(event, result=result) if isinstance(event, CacheEvent) else event for event in run.events)
    return dynx.Run(tuple(events))


class TestArguments:
    def test_files(self, base, tmp_path):
        base[0].save(tmp_path / "a.dynx")
        recorded(product, (X.double(), Y.double()))[0].save(tmp_path / "b.dynx")
        found = pgo.cachediff(tmp_path / "a.dynx", str(tmp_path / "b.dynx"))
        assert [cause.component for cause in found] == ["x.dtype and 1 more"]
        assert not found.problem

    def test_a_run_without_keys(self, base):
        found = pgo.cachediff(base[0], dynx.Run())
        assert found.problem.startswith("the second run has no keys of graphs\n")
        assert not found

    def test_a_first_run_without_keys_beside_a_bypass(self, base):
        bypass = CacheEvent("aot_autograd", "bypass", 0, "1/0", None, reason="Unsupported operation")
        found = pgo.cachediff(dynx.Run(), replace(base[0], events=(*base[0].events, bypass)))
        assert found.problem.startswith("the first run has no keys of graphs\n")

    def test_a_file_of_something_else(self, base, tmp_path):
        (tmp_path / "x").write_text("{}")
        with pytest.raises(BadRunFile):
            pgo.cachediff(base[0], tmp_path / "x")

    def test_graphs_that_another_run_stored(self, base):
        """`b` found every graph, although `a` has compiled none of them: a third run did."""
        second = recorded(product, (X.double(), Y.double()))[0]
        assert len(pgo.cachediff(base[0], second)) == 1
        found = pgo.cachediff(base[0], with_results(second, "hit"))
        assert not found
        assert (found.same, found.different, found.elsewhere) == (0, 0, 1)

    def test_a_graph_that_missed_before_a_reset_and_was_found_after_it(self, base):
        again = with_results(base[0], "hit")
        later = [
            replace(event, generation=event.generation + 1)
            for event in again.events
            if isinstance(event, (CacheKey, CacheEvent))
        ]
        twice = dynx.Run((*base[0].events, *later))
        assert [cause.kind for cause in pgo.cachediff(base[0], twice)] == ["entry"]

    def test_a_graph_that_the_first_run_could_not_store(self, base):
        """It was compiled there; its cache was bypassed."""
        where = base[0].cache_keys[0].location
        first = dynx.Run(
            (
                *base[0].events,
                CacheEvent("aot_autograd", "bypass", 0, "7/0", replace(where, function="other"), reason="Unsupported"),
            ),
        )
        second = [
            replace(
                event, location=replace(where, function="other"), **({"digest": "1"} if isinstance(event, CacheKey) else {})
            )
            if isinstance(event, (CacheEvent, CacheKey))
            else event
            for event in base[0].events
        ]
        (cause,) = pgo.cachediff(first, dynx.Run(tuple(second)))
        assert (cause.kind, cause.before, cause.after, cause.rule) == ("bypass", "Unsupported", "looked up", "DX402")

    def test_a_cache_that_only_the_second_run_bypassed(self, base):
        where = base[0].cache_keys[0].location
        hits = with_results(base[0], "hit").events
        bypass = CacheEvent("aot_autograd", "bypass", 0, "7/0", where, reason="Unsupported")
        (cause,) = pgo.cachediff(base[0], dynx.Run((*hits, bypass)))
        assert (cause.kind, cause.before, cause.after) == ("bypass", "looked up", "Unsupported")

    def test_misses_with_the_same_key(self, base):
        same = pgo.cachediff(base[0], base[0])
        assert [(cause.kind, cause.component) for cause in same] == [("entry", "entry of the same key")]
        hits = [replace(event, result="hit") if isinstance(event, CacheEvent) else event for event in base[0].events]
        assert not pgo.cachediff(base[0], dynx.Run(tuple(hits)))
