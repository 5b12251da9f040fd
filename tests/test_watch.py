"""`dynx.watch()` as a context manager, as a decorator, and with a torch that lacks or changes hooked attributes."""

from __future__ import annotations

import dataclasses
import importlib
import subprocess
import sys
import time

import pytest
import torch

import dynx
from dynx import Run
from dynx._torch.capabilities import HOOK_POINTS
from dynx._trace import bus
from dynx.errors import DynxError, DynxWarning


def add(x):
    return x + 1


def program():
    """Run a function that compiles, recompiles and breaks its graph."""

    def f(x):
        y = x + 1
        print(end="")
        return y * 2

    compiled = torch.compile(f, backend="eager")
    return [compiled(torch.ones(n)).sum().item() for n in (2, 3)]


def test_importing_dynx_does_not_import_torch():
    """`dynx show` and editors import dynx; importing torch takes seconds."""
    done = subprocess.run(
        [sys.executable, "-c", "import dynx, sys; assert 'torch' not in sys.modules; dynx.watch; print('ok')"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "ok\n", done.stderr


def test_public_names_of_dynx_are_listed_and_resolve_lazily():
    assert dir(dynx) == sorted(dynx.__all__)
    assert callable(dynx.doctor)
    importlib.import_module("dynx._doctor.doctor")  # importing the module must not hide the function
    assert callable(dynx.doctor)
    with pytest.raises(AttributeError, match="has no attribute 'wach'"):
        dynx.wach  # noqa: B018


def test_watch_updates_live_and_its_run_is_a_frozen_snapshot():
    with dynx.watch() as w:
        compiled = torch.compile(add, backend="eager")
        compiled(torch.ones(3))
        early = w.run
        assert len(w.compiles) == 1
        compiled(torch.ones(4))
    assert (len(early.compiles), len(w.run.compiles), len(w.recompiles)) == (1, 2, 1)
    assert w.run.is_complete
    assert w.seconds > 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        w.run.events = ()


def test_watch_has_the_public_members_of_a_run():
    """Everything that a run offers is also available on the watch, without `.run`."""

    def members(cls):
        return {name for name in dir(cls) if not name.startswith("_")}

    fields = {field.name for field in dataclasses.fields(Run)}
    assert members(Run) | fields == (members(dynx.watch()) - {"run", "close", "path", "is_saved"}) | {"load"}


def test_members_of_a_watch_equal_those_of_its_run(tmp_path):
    with dynx.watch() as w:
        program()
    run = w.run
    for name in dir(Run):
        value = getattr(run, name)
        if not name.startswith("_") and not callable(value):
            assert getattr(w, name) == value, name
    assert (w.to_json(), w.to_perfetto()) == (run.to_json(), run.to_perfetto())
    w.save(tmp_path / "run.dynx")
    assert Run.load(tmp_path / "run.dynx") == run


def test_record_groups_of_a_watch_cannot_be_assigned():
    with dynx.watch() as w:
        pass
    with pytest.raises(AttributeError, match=r"compiles cannot be set: it is computed from run.events"):
        w.compiles = ()


def test_function_decorated_with_watch_has_the_run_of_its_last_call():
    @dynx.watch()
    def train(n):
        """Train."""
        torch.compile(add, backend="eager")(torch.ones(n))
        return n

    assert train.dynx.run.compiles == ()
    assert train(3) == 3
    assert len(train.dynx.run.compiles) == 1
    train(3)
    assert train.dynx.run.compiles == ()
    assert (train.__name__, train.__doc__) == ("train", "Train.")


def test_function_decorated_with_watch_has_its_run_even_if_the_call_raises():
    @dynx.watch()
    def train():
        torch.compile(add, backend="eager")(torch.ones(3))
        raise ValueError("no data")

    with pytest.raises(ValueError, match="no data"):
        train()
    assert train.dynx.run.end["outcome"] == "raised ValueError"
    assert len(train.dynx.run.compiles) == 1


def test_nested_watches_each_record_the_compiles_while_they_are_open():
    compiled = torch.compile(add, backend="eager")
    with dynx.watch() as outer:
        compiled(torch.ones(2))
        with dynx.watch() as inner:
            compiled(torch.ones(3))
    assert (len(outer.compiles), len(inner.compiles)) == (2, 1)


def test_entering_a_watch_twice_raises_and_the_watch_stays_usable():
    with dynx.watch() as w:
        with pytest.raises(DynxError, match="already open"), w:
            pass
        torch.compile(add, backend="eager")(torch.ones(2))
    assert len(w.compiles) == 1


@pytest.mark.slow
def test_watch_with_full_detail_records_a_timeline_and_the_state_at_graph_breaks(tmp_path):
    def f(x):
        y = x.sin()
        torch._dynamo.graph_break()
        return y + 1

    first = f.__code__.co_firstlineno
    path = tmp_path / "run.dynx"
    with dynx.watch(detail="full", out=path) as w:
        compiled = torch.compile(f, backend="eager", dynamic=False)
        compiled(torch.ones(2))
        compiled(torch.ones(3))
    run = w.run
    (line,) = [line for line in run.timeline if line.location.line == first + 1]
    assert line.nodes == ("y", "y"), "of both compilations, without discarded attempts"
    assert line.seconds > 0
    assert [traced.id for traced in run.traced] == [compile.id for compile in run.compiles]
    assert [traced.attempts for traced in run.traced] == [len(compile.attempts) for compile in run.compiles]
    (state,) = run.post_mortem
    assert state.location.line == first + 2
    assert Run.load(path) == run


def test_watch_with_full_detail_writes_the_timeline_to_the_run_file_while_the_program_runs(tmp_path):
    path = tmp_path / "run.dynx"
    with dynx.watch(detail="full", out=path):
        torch.compile(add, backend="eager")(torch.ones(2))
        assert Run.load(path).timeline


def test_watch_with_an_unknown_detail_raises():
    with pytest.raises(DynxError, match=r"detail='everything'.*\n  valid choices"):
        dynx.watch(detail="everything")


def test_watch_writes_compiles_to_the_run_file_while_the_program_runs(tmp_path):
    path = tmp_path / "run.dynx"
    with dynx.watch(out=path) as w:
        torch.compile(add, backend="eager")(torch.ones(2))
        assert len(Run.load(path).compiles) == 1
    assert Run.load(path) == w.run


def test_watch_with_an_unwritable_run_file_warns_and_continues(tmp_path):
    with pytest.warns(DynxWarning, match="cannot write"), dynx.watch(out=tmp_path) as w:
        torch.compile(add, backend="eager")(torch.ones(2))
    assert len(w.compiles) == 1


@pytest.mark.parametrize("point", HOOK_POINTS, ids=lambda point: point.name)
def test_watch_reports_a_hook_point_that_torch_lacks_and_the_program_continues(monkeypatch, point):
    """A later torch may rename the attribute."""
    hooks = [dataclasses.replace(hook, path=hook.path + "_gone") if hook is point else hook for hook in HOOK_POINTS]
    monkeypatch.setattr(bus, "HOOK_POINTS", hooks)
    with dynx.watch() as w:
        assert program() == [8, 12]
    missing = [trouble.what for trouble in w.troubles]
    assert missing == ([] if point.optional else [point.purpose])


@pytest.mark.parametrize("point", HOOK_POINTS, ids=lambda point: point.name)
@pytest.mark.parametrize("when", ["before", "after"])
def test_watch_records_an_exception_in_a_hook_subscriber_and_the_program_continues(monkeypatch, point, when):
    """A later torch may change the arguments of the hooked function."""
    fired = []

    def broken(args, kwargs):
        def after(result, raised):
            fired.append(point)
            raise TypeError("no such field")

        if when == "after":
            return after
        fired.append(point)
        raise TypeError("no such field")

    monkeypatch.setitem(bus.SUBSCRIBERS, point.name, broken)
    with dynx.watch() as w:
        assert program() == [8, 12]
    if fired:
        assert (point.purpose, "TypeError: no such field") in [(trouble.what, trouble.why) for trouble in w.troubles]


@pytest.mark.slow
def test_backward_graph_compiled_at_the_first_backward_counts_as_compile_time():
    """Inductor compiles it at the first backward(), which takes as long as the compile of the forward graph."""
    compiled = torch.compile(lambda x: (x * 3).sin().sum())
    with dynx.watch() as w:
        compiled(torch.ones(3, requires_grad=True)).backward()
    (compile,) = w.compiles
    assert w.compile_seconds == pytest.approx(compile.seconds + sum(backward.seconds for backward in w.backwards))
    assert [backward.id for backward in w.backwards] in ([compile.id], [])  # a cache hit includes it


def test_watch_records_the_compile_phases_and_caches_of_inductor():
    """Inductor is the default backend."""
    with dynx.watch() as w:
        compiled = torch.compile(add)
        assert compiled(torch.ones(3)).tolist() == [2, 2, 2]
    (compile,) = w.compiles
    assert compile.backend == "inductor"
    assert compile.phases["backend"] > 0
    assert set(compile.phases) == {"trace", "aot", "backend", "autotuning", "kernels", "guards"}
    assert sum(compile.phases.values()) == pytest.approx(compile.seconds)
    assert {event.cache for event in w.caches} <= {"fx_graph", "aot_autograd"}
    assert w.caches


def test_autotuning_and_waiting_for_compilers_are_phases():
    """A backend that spends time under the names of inductor's timers."""
    from torch._dynamo.utils import dynamo_timed

    def tuned(gm, inputs):
        with dynamo_timed("mm_template_precompiling"):
            time.sleep(0.02)
        with dynamo_timed("mm_template_autotuning"):
            time.sleep(0.02)
        with dynamo_timed("async_compile.wait"):
            time.sleep(0.02)
        return gm

    with dynx.watch() as w:
        torch.compile(add, backend=tuned)(torch.ones(3))
    (compile,) = w.compiles
    assert compile.phases["autotuning"] >= 0.04
    assert compile.phases["kernels"] >= 0.02
    assert compile.backend_seconds == pytest.approx(sum(compile.phases[name] for name in ("backend", "autotuning", "kernels")))
    assert sum(compile.phases.values()) == pytest.approx(compile.seconds)


MEMBERS = ["findings", "recompiles", "graph_breaks", "compiles", "gave_up", "run", "to_json"]


@pytest.fixture
def watch_and_run(tmp_path):
    """Return a watch that recorded a recompile, and its run file, loaded."""
    compiled = torch.compile(lambda x: x + 1, backend="eager")
    with dynx.watch(out=tmp_path / "run.dynx") as w:
        compiled(torch.ones(3))
        compiled(torch.ones(4))
    return {"w": w, "r": dynx.Run.load(tmp_path / "run.dynx")}


def test_dir_of_a_watch_and_of_a_run_lists_the_kinds_of_records(watch_and_run):
    assert set(MEMBERS) <= set(dir(watch_and_run["w"]))
    assert set(MEMBERS) - {"run"} <= set(dir(watch_and_run["r"]))


@pytest.mark.parametrize("use_jedi", [True, False])
@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("w.rec", "recompiles"),
        ("w.fin", "findings"),
        ("w.graph_b", "graph_breaks"),
        ("w.recompiles[0].rea", "reasons"),
        ("r.rec", "recompiles"),
        ("r.fin", "findings"),
    ],
)
def test_ipython_completes_the_members_of_a_watch_and_of_a_run(watch_and_run, typed, expected, use_jedi):
    """In a notebook, the records are found with the Tab key."""
    completer = pytest.importorskip("IPython.core.completer")
    complete = completer.IPCompleter(namespace=watch_and_run, use_jedi=use_jedi, evaluation="limited")
    with completer.provisionalcompleter():
        offered = {completion.text.lstrip(".") for completion in complete.completions(typed, len(typed))}
    assert offered == {expected}


def test_a_function_that_takes_a_module_is_not_named_after_the_class_of_the_module():
    def step(model, x):
        return model(x)

    with dynx.watch() as watch:
        torch.compile(step, backend="eager")(torch.nn.Linear(2, 2), torch.ones(1, 2))
        torch.compile(torch.nn.Sequential(torch.nn.Linear(2, 2)), backend="eager")(torch.ones(1, 2))
    names = [compile.location.function for compile in watch.compiles]
    assert [name.rpartition("<locals>.")[2] for name in names] == ["step", "Sequential.forward"]
