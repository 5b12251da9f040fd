"""Regression tests: cases in which `dynx.watch()` could affect the program that it observes."""

from __future__ import annotations

import inspect
import io
import itertools
import logging
import sys
import threading
import types
import warnings

import pytest
import torch

import dynx
from dynx._bytecode import safe_read
from dynx._torch.hooks import HookPoint, installed, subscribe
from dynx._trace import bus
from dynx.errors import DynxError


def add(x):
    return x + 1


def test_hooked_function_without_the_expected_skip_parameter_is_called(monkeypatch):
    module = types.ModuleType("hook_target")
    module.f = lambda x: x
    module.g = lambda x, skip=0: skip
    monkeypatch.setitem(sys.modules, "hook_target", module)
    with (
        subscribe(HookPoint("f", "hook_target:f", skips=True), lambda a, k: None, on_error=print),
        subscribe(HookPoint("g", "hook_target:g", skips=True), lambda a, k: k.update(bad=1), on_error=print),
    ):
        assert module.f(3) == 3
        assert module.g(3) == 1
        assert module.g(3, skip=2) == 3


def test_torch_log_message_with_a_bad_format_string_does_not_fail_the_compilation():
    """torch's loggers are the program's too: a bad format string must not fail the compilation because dynx listens."""

    def backend(graph_module, inputs):
        logging.getLogger("torch._dynamo").warning("%d items", "x")
        return graph_module.forward

    raising, logging.raiseExceptions = logging.raiseExceptions, False
    try:
        with dynx.watch():
            assert torch.compile(add, backend=backend)(torch.ones(3)).sum() == 6
    finally:
        logging.raiseExceptions = raising


def test_saved_warnings_showwarning_holds_no_reference_to_an_ended_watch():
    """Another thread may save `warnings.showwarning` while torch compiles, and restore it afterwards."""
    saved = []

    def backend(graph_module, inputs):
        saved.append(warnings.showwarning)
        return graph_module.forward

    before = warnings.showwarning
    with dynx.watch() as w:
        torch.compile(add, backend=backend)(torch.ones(3))
    assert warnings.showwarning == before
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        saved[0]("late", UserWarning, "a.py", 1, file=io.StringIO())
    assert not w.warnings
    site = inspect.getclosurevars(saved[0]).nonlocals["site"]
    assert (site.subscribers, site.wrappers, site.chain[0]) == ([], [], before)


def test_trace_bus_listener_that_raises_at_compile_start_leaves_no_hook_installed():
    def fails(compile_id, location):
        raise RuntimeError("no terminal")

    records = []
    handlers, before = list(logging.getLogger("torch._dynamo").handlers), installed()
    listening = bus.listen(records.append, on_start=fails)
    try:
        assert torch.compile(add, backend="eager")(torch.ones(3)).sum() == 6
    finally:
        listening.remove()
    assert [type(record).__name__ for record in records] == ["Trouble", "Compile"]
    assert logging.getLogger("torch._dynamo").handlers == handlers
    assert installed() == before


def test_guarded_values_are_read_without_evaluating_an_overridden___class__():
    calls = []

    class OverriddenClass:
        @property
        def __class__(self):
            calls.append("__class__")
            return dict

    locals = {"o": OverriddenClass(), "G": 7}
    assert safe_read.describe("o[0]", locals, {}) is None
    assert safe_read.holder("o.v", locals, {}) == "object"
    assert safe_read.describe("G", locals, {"x": 1}) == "7"
    assert not calls


def test_recursive_function_can_be_decorated_with_watch(tmp_path):
    @dynx.watch(out=tmp_path / "run.dynx")
    def down(n):
        torch.compile(lambda x: x * n, backend="eager")(torch.ones(n + 1))
        return down(n - 1) if n else 0

    down(2)
    assert len(down.dynx.run.compiles) == 3


@pytest.mark.parametrize("kind", ["generator", "coroutine"])
def test_decorating_a_generator_or_coroutine_with_watch_raises(kind):
    def generator():
        yield 1

    async def coroutine():
        return 1

    with pytest.raises(DynxError, match="its body runs after the call returns"):
        dynx.watch()(generator if kind == "generator" else coroutine)


def test_unwritable_run_file_does_not_raise_when_warnings_are_errors(capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with dynx.watch(out="/proc/nope/run.dynx") as w:
            torch.compile(add, backend="eager")(torch.ones(3))
    assert len(w.compiles) == 1
    assert "cannot write /proc/nope/run.dynx" in capsys.readouterr().err


def test_recompile_limit_reached_by_several_threads_is_recorded_once():
    numbers = itertools.count(2)  # an attribute that changes while another thread traces would fail the new guards
    compiled = torch.compile(lambda x, number: x * number, backend="eager", dynamic=False)

    turn = threading.Lock()  # on torch 2.11 calls at the same time lose dynamic=False, or crash in torch

    def work():
        for _ in range(12):
            with turn:
                compiled(torch.ones(2), next(numbers))

    with dynx.watch() as w:
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(w.gave_up) == 1
    assert sum(finding.seconds for finding in w.findings) <= w.compile_seconds
