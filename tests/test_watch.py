"""`dynx.watch()` as people use it."""

from __future__ import annotations

import dataclasses
import importlib
import subprocess
import sys

import pytest
import torch

import dynx
from dynx._torch.capabilities import HOOK_POINTS
from dynx._trace import bus
from dynx.errors import DynxError, DynxWarning
from dynx.records import Run


def add(x):
    return x + 1


def program():
    """Compiles, recompiles and breaks."""

    def f(x):
        y = x + 1
        print(end="")
        return y * 2

    compiled = torch.compile(f, backend="eager")
    return [compiled(torch.ones(n)).sum().item() for n in (2, 3)]


def test_importing_dynx_does_not_import_torch():
    """`dynx show` and editors import it; torch takes seconds."""
    done = subprocess.run(
        [sys.executable, "-c", "import dynx, sys; assert 'torch' not in sys.modules; dynx.watch; print('ok')"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "ok\n", done.stderr


def test_the_public_names():
    assert dynx.__all__ == ["Run", "__version__", "compile", "doctor", "watch", "would_recompile"]
    assert dir(dynx) == sorted(dynx.__all__)
    assert callable(dynx.doctor)
    importlib.import_module("dynx._doctor.doctor")  # must not hide the verb
    assert callable(dynx.doctor)
    with pytest.raises(AttributeError, match="has no attribute 'wach'"):
        dynx.wach  # noqa: B018


def test_a_watch_is_live_and_its_run_is_frozen():
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


def test_a_watch_has_the_members_of_a_run():
    """What can be asked of a run can be asked of a watch, without taking `.run` first."""

    def members(cls):
        return {name for name in dir(cls) if not name.startswith("_")}

    fields = {field.name for field in dataclasses.fields(Run)}
    assert members(Run) | fields == (members(dynx.watch()) - {"run", "close"}) | {"load"}


def test_every_member_of_a_watch_is_that_of_its_run(tmp_path):
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


def test_the_groups_of_a_run_cannot_be_set():
    with dynx.watch() as w:
        pass
    with pytest.raises(AttributeError, match="compiles of a run is computed from its events"):
        w.compiles = ()


def test_a_decorated_function_carries_its_last_run():
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


def test_a_decorated_function_that_raises_still_carries_its_run():
    @dynx.watch()
    def train():
        torch.compile(add, backend="eager")(torch.ones(3))
        raise ValueError("no data")

    with pytest.raises(ValueError, match="no data"):
        train()
    assert train.dynx.run.end["outcome"] == "raised ValueError"
    assert len(train.dynx.run.compiles) == 1


def test_nested_watches_each_see_their_own_span():
    compiled = torch.compile(add, backend="eager")
    with dynx.watch() as outer:
        compiled(torch.ones(2))
        with dynx.watch() as inner:
            compiled(torch.ones(3))
    assert (len(outer.compiles), len(inner.compiles)) == (2, 1)


def test_entering_twice_is_refused_and_harms_nothing():
    with dynx.watch() as w:
        with pytest.raises(DynxError, match="open already"), w:
            pass
        torch.compile(add, backend="eager")(torch.ones(2))
    assert len(w.compiles) == 1


def test_full_detail_adds_the_timeline_and_the_state_at_breaks(tmp_path):
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
    (line,) = [each for each in run.timeline if each.location.line == first + 1]
    assert line.nodes == ("sin", "sin"), "of both compilations, without attempts that were thrown away"
    assert line.seconds > 0
    assert [each.id for each in run.traced] == [each.id for each in run.compiles]
    assert [each.attempts for each in run.traced] == [len(each.attempts) for each in run.compiles]
    (state,) = run.post_mortem
    assert state.location.line == first + 2
    assert Run.load(path) == run


def test_full_detail_is_in_the_file_when_the_process_is_killed(tmp_path):
    path = tmp_path / "run.dynx"
    with dynx.watch(detail="full", out=path):
        torch.compile(add, backend="eager")(torch.ones(2))
        assert Run.load(path).timeline


def test_an_unknown_detail_is_refused():
    with pytest.raises(DynxError, match="detail='everything'"):
        dynx.watch(detail="everything")


def test_the_run_file_grows_while_the_program_runs(tmp_path):
    path = tmp_path / "run.dynx"
    with dynx.watch(out=path) as w:
        torch.compile(add, backend="eager")(torch.ones(2))
        assert len(Run.load(path).compiles) == 1
    assert Run.load(path) == w.run


def test_a_file_that_cannot_be_written_is_told_and_the_watch_goes_on(tmp_path):
    with pytest.warns(DynxWarning, match="cannot write"), dynx.watch(out=tmp_path) as w:
        torch.compile(add, backend="eager")(torch.ones(2))
    assert len(w.compiles) == 1


@pytest.mark.parametrize("point", HOOK_POINTS, ids=lambda point: point.name)
def test_a_missing_hook_point_costs_only_what_it_shows(monkeypatch, point):
    """The next torch may have moved it."""
    gone = [dataclasses.replace(each, path=each.path + "_gone") if each is point else each for each in HOOK_POINTS]
    monkeypatch.setattr(bus, "HOOK_POINTS", gone)
    with dynx.watch() as w:
        assert program() == [8, 12]
    told = [trouble.what for trouble in w.troubles]
    assert told == ([] if point.optional else [point.purpose])


@pytest.mark.parametrize("point", HOOK_POINTS, ids=lambda point: point.name)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_hook_point_that_means_something_else_costs_only_what_it_shows(monkeypatch, point, when):
    """dynx cannot read the arguments any more: it says so once, and the program goes on."""
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
        assert (point.purpose, "TypeError: no such field") in [(each.what, each.why) for each in w.troubles]


def test_a_backward_graph_compiled_late_is_counted():
    """With inductor it takes as long as the forward, at the first backward()."""
    compiled = torch.compile(lambda x: (x * 3).sin().sum())
    with dynx.watch() as w:
        compiled(torch.ones(3, requires_grad=True)).backward()
    (compile,) = w.compiles
    assert w.compile_seconds == pytest.approx(compile.seconds + sum(each.seconds for each in w.backwards))
    assert [each.id for each in w.backwards] in ([compile.id], [])  # a cache hit brings it along


def test_results_are_the_same_with_inductor():
    """The default backend, with caches and all."""
    with dynx.watch() as w:
        compiled = torch.compile(add)
        assert compiled(torch.ones(3)).tolist() == [2, 2, 2]
    (compile,) = w.compiles
    assert compile.backend == "inductor"
    assert compile.phases["backend"] > 0
    assert set(compile.phases) == {"trace", "aot", "backend", "guards"}
    assert {each.cache for each in w.caches} <= {"fx_graph", "aot_autograd"}
    assert w.caches
