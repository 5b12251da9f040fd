"""`watch(stale=True)`: values that changed while compiled code kept the old ones."""

from __future__ import annotations

import os
import re
import threading
from types import SimpleNamespace

import pytest
import torch
from support import stale_programs
from support.stale_programs import PROGRAMS, Net

import dynx

X = torch.ones(1)
STALE_IN_SOME = {"number_of_attributes", "method_that_a_subclass_gets_later"}  # torch 2.11 and 2.15 guard them


@pytest.fixture(autouse=True)
def as_before(monkeypatch):
    """Undo what the programs change in the process."""
    monkeypatch.setenv("DYNX_TEST", "1")
    monkeypatch.delenv("DYNX_OTHER", raising=False)
    yield
    for name in ("abs", "divmod"):
        vars(stale_programs).pop(name, None)
    torch.nn.modules.module._global_forward_hooks.clear()


def watched(fn, change):
    """Call a compiled function before and after a change; return the watch and whether the last result is stale."""
    compiled = torch.compile(fn, backend="eager")
    with dynx.watch(stale=True) as w:
        compiled(X), compiled(X)
        change()
        got = compiled(X)
        compiled(X)
    assert not w.troubles
    return w, got.item() != fn(X).item()


def stale_findings(w):
    return [finding for finding in w.findings if finding.rule in ("DX911", "DX912", "DX913")]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_value_that_changed_is_found_with_its_line_and_the_calls_that_used_it(name):
    w, is_stale = watched(*PROGRAMS[name]()[:2])
    assert is_stale or name in STALE_IN_SOME
    assert bool(stale_findings(w)) == is_stale
    for stale in w.stale_values:
        assert stale.calls == 2
        assert stale.seen.file == __file__
        assert "compiled(X)" in stale_line(stale.seen)
        assert stale.before != stale.now or stale.kind in ("function", "method")
    for finding in stale_findings(w):
        assert finding.wrong
        assert finding.location.own.file.endswith("stale_programs.py")


def stale_line(location):
    with open(location.file) as file:
        return file.readlines()[location.line - 1]


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_near_miss_has_no_finding(name):
    w, is_stale = watched(*PROGRAMS[name]()[2:])
    assert not is_stale
    assert (stale_findings(w), w.stale_values) == ([], ())


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "module_imported_in_the_function"])
def test_reset_after_the_change_works_as_advised(name):
    fn, change = PROGRAMS[name]()[:2]
    compiled = torch.compile(fn, backend="eager")
    compiled(X), change()
    dynx.guards.reset(compiled)
    assert compiled(X).item() == fn(X).item()


def test_nothing_is_stale_if_no_call_follows_the_change():
    fn, change = PROGRAMS["getenv"]()[:2]
    compiled = torch.compile(fn, backend="eager")
    with dynx.watch(stale=True) as w:
        compiled(X), compiled(X)
        change()
    assert not w.stale_values
    assert any("DYNX_TEST" in read.text for each in w.unguarded for read in each.reads)


def test_only_calls_that_ran_the_old_code_are_counted():
    """The value is changed for one call, and another call runs code that does not read it."""
    hold = SimpleNamespace(a=object(), b=None)
    hold.b = hold.a

    def fn(x, reads):
        return x * (2.0 if hold.a is hold.b else 1.0) if reads else x + 1

    compiled = torch.compile(fn, backend="eager")
    with dynx.watch(stale=True) as w:
        compiled(X, True), compiled(X, False)
        hold.b = object()
        compiled(X, False), compiled(X, True)
        hold.b = hold.a
        compiled(X, True)
    (stale,) = w.stale_values
    assert (stale.calls, stale.before, stale.now) == (1, "True", "False")


def test_a_hook_is_found_in_a_resume_function():
    net = Net()

    def fn(x):
        y = x + 1
        torch._dynamo.graph_break()
        return net(y)

    w, is_stale = watched(fn, lambda: net.inner.register_forward_hook(lambda module, args, out: out + 1))
    assert is_stale
    (finding,) = stale_findings(w)
    assert (finding.rule, finding.title) == (
        "DX912",
        "compiled code does not call a hook of net.inner, registered after it was compiled: 1 forward hook",
    )


def test_a_hook_of_another_module_is_not_counted():
    """One entry serves two modules of a class; only one of them gets a hook."""
    first, second = Net(), Net()
    compiled = torch.compile(lambda net, x: net(x), backend="eager")
    with dynx.watch(stale=True) as w:
        compiled(first, X), compiled(second, X)
        first.inner.register_forward_hook(lambda module, args, out: out + 1)
        compiled(second, X), compiled(second, X)
        assert not w.recompiles
        compiled(first, X)
    assert [stale.calls for stale in w.stale_values] == [1]


def test_the_advice_on_hooks_works():
    net = Net()
    with torch._dynamo.config.patch(skip_nnmodule_hook_guards=False):
        w, is_stale = watched(net.forward, lambda: net.inner.register_forward_hook(lambda module, args, out: out + 1))
    assert (is_stale, stale_findings(w)) == (False, [])


def test_results_graphs_and_guards_are_the_same_without_a_change():
    """The watch adds a guard only to an entry of which a value changed."""

    def guards_with(stale):
        net = Net()
        compiled = torch.compile(lambda x: net(x) * float(os.getenv("DYNX_TEST")), backend="eager")
        with dynx.watch(stale=stale, detail="full") as w:
            compiled(X), compiled(X)
        (entry,) = dynx.guards.inspect(compiled).entries
        guards = [(re.sub(r"___\d+", "", guard.source), guard.kind) for each in w.guards for guard in each.guards]
        return sorted(guards), w.graph_code[0].code, entry.size

    torch._dynamo.reset()
    without = guards_with(False)
    torch._dynamo.reset()
    assert guards_with(True) == without


def test_values_of_the_program_are_not_kept_alive():
    import gc
    import weakref

    net = Net()
    alive = weakref.ref(net.inner)
    compiled = torch.compile(net.forward, backend="eager")
    with dynx.watch(stale=True):
        compiled(X)
        torch._dynamo.reset()
        del net, compiled
        gc.collect()
        assert alive() is None


def test_code_of_the_program_is_not_called_to_read_values_again():
    calls = []

    class Meta(type):
        @property
        def scale(cls):
            calls.append("property")
            return 2.0

    class Config(metaclass=Meta):
        def __eq__(self, other):
            calls.append("eq")
            return True

        __hash__ = object.__hash__

    config = Config()
    compiled = torch.compile(lambda x: x * (2.0 if config is Config else 1.0), backend="eager")
    with dynx.watch(stale=True):
        compiled(X)
        calls.clear()
        compiled(X), compiled(X)
    assert not calls


def test_an_error_in_a_recorder_is_reported_and_does_not_stop_the_trace(monkeypatch):
    from dynx._torch.unguarded import instructions

    def fail(*args):
        raise ValueError("recorder")

    monkeypatch.setattr(instructions, "note_attribute", fail)
    net = Net()
    with dynx.watch(stale=True) as w:
        assert torch.compile(lambda x: net.inner(x), backend="eager", fullgraph=True)(X).item() == 2
    assert {trouble.why for trouble in w.troubles} == {"frame_run: ValueError: recorder"}


def test_calls_on_another_thread_are_counted():
    fn, change = PROGRAMS["getenv"]()[:2]
    compiled = torch.compile(fn, backend="eager")
    with dynx.watch(stale=True) as w:
        compiled(X)
        change()
        thread = threading.Thread(target=compiled, args=(X,))
        thread.start()
        thread.join()
    assert [stale.calls for stale in w.stale_values] == [1]
