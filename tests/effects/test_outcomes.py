"""What `check` says is proven in the run, or the report says that it is not."""

from __future__ import annotations

import asyncio
import functools
import gc
import importlib.util
import logging
import os
import sqlite3
import sys
import threading
import time
import types

import pytest
import support.state_package.part as part
import torch
from torch import nn

import dynx
from dynx.effects._check.draws import RecordDraws
from dynx.effects._world.world import Call, World
from dynx.errors import CompiledDiffers, NotIsolated, UsageError
from dynx.records.check import FALLBACK_RANDOM


def x(*sizes):
    return torch.ones(*(sizes or (3,)))


def computed(value):
    getattr(part, "".join(("he", "ld"))).append(1)
    return value * 2


@pytest.fixture
def held():
    part.held = []
    yield part.held
    part.held = None


def test_a_change_of_the_program_itself_is_named(held):
    """Neither eager nor compiled code is proven then, and the list that the caller finds changed is in the message."""
    report = dynx.check(computed, x())
    assert not report.ok
    assert report.outcome == "not isolated"
    assert [leak.path for leak in report.leaks] == ["support.state_package.part.held"]
    assert "support.state_package.part.held: nothing, then [0] = 1" in report.text
    with pytest.raises(NotIsolated, match=r"state_package\.part\.held"):
        report.assert_ok()
    assert not report.stage


@pytest.mark.slow
def test_the_advice_for_a_change_of_the_program_itself_helps(held):
    assert dynx.check(computed, x(), state={"part": part}).ok
    assert held == []
    forked = dynx.check(computed, x(), isolate="fork")
    assert forked.ok
    assert held == []


class Numbers(set):
    """Torch before 2.15 loses what is added."""


@pytest.mark.slow
def test_state_that_no_name_leads_to_is_compared_in_forked_processes():
    part.held = Numbers()

    def fn(value):
        getattr(part, "".join(("he", "ld"))).add(1)
        return value * 2

    def really(compiled):
        part.held = Numbers()
        (torch.compile(fn, backend="eager") if compiled else fn)(x())
        return set(part.held)

    is_same = really(compiled=True) == really(compiled=False)
    torch._dynamo.reset()
    part.held = Numbers()
    report = dynx.check(fn, x(), isolate="fork")
    assert report.outcome == ("same" if is_same else "different")
    assert len(part.held) == 0


def numbers():
    yield from range(100)


def test_a_generator_that_both_sides_use_makes_no_difference():
    """It goes on where eager code has stopped, which says nothing of Dynamo."""
    report = dynx.check(lambda value, items: value * next(items), x(), numbers())
    assert report.outcome == "not isolated"
    assert not report.stage
    assert any("args[1]" in leak.path for leak in report.leaks)


@pytest.mark.slow
def test_an_object_whose_state_cannot_be_read_is_named():
    connection = sqlite3.connect(":memory:")

    report = dynx.check(lambda value, connection: value * 2, x(), connection)
    assert report.outcome == "not isolated"
    assert report.unread == ("sqlite3.Connection",)
    connection.close()


def test_objects_without_state_of_their_own_do_not_spoil_a_verdict(tmp_path):
    lock, log = threading.Lock(), logging.getLogger("test_outcomes")
    with open(tmp_path / "file", "w") as file:

        def fn(value):
            with lock:
                log.debug("called")
            return value * 2 if not file.closed else value

        assert dynx.check(fn, x()).outcome in ("same", "vacuous")


def test_records_of_a_handler_are_compared_and_left():
    class Kept(logging.Handler):
        def __init__(self):
            super().__init__()
            self.seen = []

        def emit(self, record):
            self.seen.append(record.getMessage())

    log, kept = logging.getLogger("test_outcomes.kept"), Kept()
    log.addHandler(kept)
    log.setLevel(logging.INFO)

    def fn(value):
        log.info("called")
        return value * 2

    assert not dynx.check(fn, x()).shared
    assert (kept.seen, log.handlers) == ([], [kept])


@pytest.mark.slow
def test_a_function_is_compiled_as_it_is():
    """A wrapper around it would be compiled instead, in which torch treats generators, globals and imports otherwise."""

    def steps(value):
        yield value * 2

    assert dynx.check(steps, x()).outcome == "vacuous"


def module_of(number, folder):
    """Return a new module named `same_name` whose list has another length each time."""
    file = folder / f"same_name_{number}.py"
    file.write_text(
        f"ITEMS = [0] * {number}\n\n\ndef helper():\n    return len(ITEMS)\n\n\ndef f(x):\n    return x + helper()\n"
    )
    spec = importlib.util.spec_from_file_location("same_name", file)
    module = sys.modules["same_name"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_two_modules_of_one_name_do_not_meet(tmp_path):
    """A notebook that is run again, or a test that writes modules, has the new module's variables, not the first one's."""
    for number in (2, 3, 4):
        module = module_of(number, tmp_path)
        before = set(vars(module))
        report = dynx.check(module.f, x())
        assert report.ok, report.text
        assert set(vars(module)) == before
        del module
        del sys.modules["same_name"]
        gc.collect()
    scopes = [value for value in gc.get_objects() if type(value) is dict]
    assert not any("__import_same_name" in scope for scope in scopes)


@pytest.mark.slow
def test_a_module_imported_inside_is_the_present_one(tmp_path):
    def f(value):
        import same_name

        return value + same_name.helper()

    for number in (2, 3):
        module_of(number, tmp_path)
        assert dynx.check(f, x()).ok
        assert torch.equal(f(x()), x() + number)
    del sys.modules["same_name"]


@pytest.mark.slow
def test_nothing_remains_in_globals():
    scope = {"torch": torch}
    exec("import collections\ndef f(x):\n    d = collections.deque([x])\n    return d[0] * 2", scope)
    before = set(scope)
    assert dynx.check(scope["f"], x()).ok
    assert set(scope) == before


class Scaled(nn.Module):
    def forward(self, value):
        return value * 2


def test_a_hook_that_compiled_code_does_not_see_is_a_difference():
    """torch.compile documents that hooks registered after the first call are not seen by default; eager code runs them."""
    module = Scaled()
    calls = []
    module.register_forward_hook(lambda *_: None)
    report = dynx.check(
        module, x(), change=lambda: module.register_forward_hook(lambda m, args, out: calls.append(1) or out + 1)
    )
    torch._dynamo.reset()
    compiled = torch.compile(module, backend="eager")
    compiled(x())
    handle = module.register_forward_hook(lambda m, args, out: out + 1)
    is_seen = torch.equal(compiled(x()), module(x()))
    handle.remove()
    assert report.outcome == ("same" if is_seen else "different")
    assert calls == []
    assert report.calls == 4
    assert len(module._forward_hooks) == 1


def scaled_by_environment(value):
    return value * int(os.getenv("DYNX_TEST_SCALE", "1"))


def test_a_value_that_no_guard_watches_is_a_difference():
    """torch reads os.getenv while it traces, and never again."""

    def change():
        os.environ["DYNX_TEST_SCALE"] = "3"

    report = dynx.check(scaled_by_environment, x(), change=change)
    (diff,) = report.diffs
    assert (diff.path, diff.call) == ("result", 2)
    assert "(call 2, after the change" in report.text
    assert "DYNX_TEST_SCALE" not in os.environ


@pytest.mark.slow
def test_a_value_that_a_guard_watches_is_the_same_after_the_change():
    scale = [2]

    def change():
        scale[0] = 5

    report = dynx.check(lambda value: value * scale[0], x(), change=change)
    assert report.ok
    assert (report.calls, report.changed_at, scale) == (4, 2, [2])


def test_a_change_that_raises_is_an_error_of_use():
    with pytest.raises(UsageError, match="change raised ZeroDivisionError: division by zero\n  at "):
        dynx.check(lambda value: value * 2, x(), change=lambda: 1 / 0)
    with pytest.raises(UsageError, match="change=3 is not callable"):
        dynx.check(lambda value: value * 2, x(), change=3)


@pytest.mark.slow
def test_aligned_random_numbers_are_reported():
    """Inductor draws other numbers than eager code: that they are the same here is the check's doing."""
    report = dynx.check(nn.Dropout(), x(100), backend="inductor")
    assert report.ok
    assert report.settings[FALLBACK_RANDOM] is True
    assert f'{FALLBACK_RANDOM} = True); rng="as is" compares the compiled ones' in report.text
    assert FALLBACK_RANDOM not in dynx.check(lambda value: value * 2, x()).text


@pytest.mark.slow
def test_random_numbers_as_they_are_differ():
    report = dynx.check(nn.Dropout(), x(100), backend="inductor", rng="as is")
    assert report.outcome == "different"
    assert FALLBACK_RANDOM not in report.settings
    with pytest.raises(CompiledDiffers):
        report.assert_ok()
    with pytest.raises(UsageError, match="rng='mine' is not known"):
        dynx.check(nn.Dropout(), x(), rng="mine")


@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize("maxsize", [None, 2, 128])
def test_results_in_a_cache_are_there_in_the_copy(maxsize, typed):
    calls = []

    @functools.lru_cache(maxsize=maxsize, typed=typed)
    def cached(*args, **kwargs):
        calls.append(args)
        return len(calls)

    for arguments, keywords in (((1,), {}), (("a", 2.0), {}), ((), {"b": 3}), ((1, 2), {"c": (3,)})):
        cached(*arguments, **keywords)
    kept = [((), {"b": 3}), ((1, 2), {"c": (3,)})]

    def fn(value):
        return value * sum(cached(*arguments, **keywords) for arguments, keywords in kept)

    world = World(fn, [], {})
    with world.entered():
        (copy,) = [
            cell.cell_contents for name, cell in zip(fn.__code__.co_freevars, fn.__closure__, strict=True) if name == "cached"
        ]
        assert [copy(*arguments, **keywords) for arguments, keywords in kept] == [3, 4]
        assert len(calls) == 4
        assert copy.cache_parameters() == {"maxsize": maxsize, "typed": typed}
    assert cached.cache_info().currsize == (2 if maxsize == 2 else 4)


@pytest.mark.slow
def test_a_mode_and_hooks_of_all_modules_keep_their_state():
    """No name leads to them; torch calls them for each function."""

    class Counting(torch.overrides.TorchFunctionMode):
        def __init__(self):
            super().__init__()
            self.calls = []

        def __torch_function__(self, function, types, args=(), kwargs=None):
            self.calls.append(function)
            return function(*args, **(kwargs or {}))

    seen, value = [], x()
    handle = nn.modules.module.register_module_forward_hook(lambda *_: seen.append(1))
    try:
        with Counting() as mode:
            dynx.check(Scaled(), value)
    finally:
        handle.remove()
    assert (mode.calls, seen) == ([], [])


def test_state_of_a_namespace_package_is_followed(tmp_path, monkeypatch):
    package = types.ModuleType("without_init")
    package.__path__ = [str(tmp_path)]
    package.inner = types.ModuleType("without_init.inner")
    package.inner.seen = []
    monkeypatch.setitem(sys.modules, "without_init", package)

    def fn(value):
        package.inner.seen.append(1)
        return value * 2

    assert dynx.check(fn, x()).ok
    assert package.inner.seen == []


def test_a_container_or_an_object_as_state_is_left(held):
    """The advice of a report that is not isolated: any of them, whatever leads to the list."""
    assert dynx.check(computed, x(), state={"held": held}).ok
    assert held == []
    with pytest.raises(UsageError, match=r"state\['three'\] is 3, which holds nothing that can be copied"):
        dynx.check(computed, x(), state={"three": 3})


@pytest.mark.slow
def test_hooks_of_tensors_run_in_both_copies():
    seen = []
    weight = torch.ones(3, requires_grad=True)
    weight.register_hook(lambda grad: seen.append(1) or grad * 2)
    report = dynx.check(lambda value: (value * weight).sum(), x())
    assert report.ok, report.text
    assert seen == []


def test_random_numbers_that_eager_code_drew_are_recorded():
    """The mode that records them is dynx's own: a copy of the program must not take it for a mode of the program."""

    def fn(value):
        return value + torch.rand(3)

    with RecordDraws() as recorded:
        world = World(fn, [Call((x(),), {})], {})
        with world.entered():
            world.fn(*world.calls[0].args)
    assert len(recorded.draws) == 1


@pytest.mark.slow
def test_state_that_custom_operators_change_is_compared_and_left():
    """torch calls them by the name of the operator, which no search through the code follows."""
    seen = []

    @torch.library.custom_op("dynx_test_outcomes::double", mutates_args=())
    def double(value: torch.Tensor) -> torch.Tensor:
        seen.append(1)
        return value * 2

    @double.register_fake
    def _(value):
        return torch.empty_like(value)

    for fn in (lambda value: double(value), lambda value: torch.ops.dynx_test_outcomes.double(value)):
        assert dynx.check(fn, x()).ok
        assert seen == []


@pytest.mark.slow
def test_bytes_behind_a_view_are_copied():
    held = bytearray(b"a")
    view = memoryview(held)

    def fn(value):
        view[0] = 98
        return value * 2

    assert dynx.check(fn, x()).outcome in ("same", "vacuous")
    assert held == b"a"


LOOP = asyncio.SelectorEventLoop()


def test_what_an_event_loop_does_meanwhile_is_no_change_of_the_program():
    """That of a notebook's kernel, which is a variable of the user's, schedules something at any time."""
    names = ["runs"]

    def schedule():
        while names == ["runs"]:
            LOOP.call_later(100, print)
            time.sleep(0.01)

    thread = threading.Thread(target=schedule)
    thread.start()
    try:
        assert dynx.check(lambda value: value.sin(), x()).leaks == ()
    finally:
        names.clear()
        thread.join()
        LOOP.close()
