"""What-ifs change nothing in the program: neither torch's state, nor tensors, logs, warnings or objects of the user."""

from __future__ import annotations

import gc
import logging
import math
import sys
import threading
import types
import warnings
import weakref
from pathlib import Path

import pytest
import torch
from fingerprint import alive
from torch._dynamo.comptime import comptime as comptime_of_torch
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

import dynx
from dynx._torch.hooks import installed
from dynx._torch.retracing.quiet import quiet
from dynx.session import Watch

sys.path.insert(0, str(Path(__file__).parents[1] / "fuzz"))
from what_ifs import compare


def everything():
    """Return a watch that tries every fix, whatever it costs."""
    return Watch(what_if=math.inf)


def run_twice(fn, **options):
    """Call a compiled function with two sizes, so that it recompiles."""
    compiled = torch.compile(fn, backend="eager", dynamic=False, **options)
    return [compiled(torch.ones(size)) for size in (3, 4)]


@pytest.mark.parametrize("seed", range(12))
def test_random_programs_are_the_same_with_what_ifs(seed):
    """`make fuzz-what-ifs` compares a hundred: outputs, graphs, bytecode, guards, counters, profile, logs and globals."""
    assert compare(seed)[0] == []


def test_the_callbacks_of_comptime_run_once_for_each_compilation():
    """A trace of dynx that runs code of the user a second time would print twice, or count twice."""
    seen = []

    def of_torch(x):
        comptime_of_torch(lambda ctx: seen.append("torch"))
        return x + 1

    def of_dynx(x):
        dynx.comptime(lambda ctx: seen.append("dynx"))
        return x + 1

    @torch._dynamo.assume_constant_result
    def constant():
        seen.append("constant")
        return 2

    for fn in (of_dynx, lambda x: x + constant()):
        with everything() as watch:
            run_twice(fn)
        assert {each.outcome for each in watch.what_ifs} == {"not proven"}
        assert {each.reason for each in watch.what_ifs} == {"it runs code at compile time, such as a callback of comptime"}
    assert seen == ["dynx", "dynx", "constant", "constant"]
    globals()["_SEEN"] = []
    with everything():
        run_twice(_with_callback_of_torch)
    assert len(_SEEN) == 2


_SEEN: list[str] = []


def _note(ctx):
    _SEEN.append("torch")


def _with_callback_of_torch(x):
    comptime_of_torch(_note)
    return x + 1


def test_tensors_of_the_program_are_not_marked():
    """A mark that stays on a tensor would make the program's next compilation dynamic."""
    tensors = [torch.ones(3), torch.ones(4)]
    compiled = torch.compile(lambda x: x + 1, backend="eager", dynamic=False)
    with everything() as watch:
        for tensor in tensors:
            compiled(tensor)
    assert [each.fix.kind for each in watch.what_ifs if each.helps].count("mark") == 1
    assert all(not [name for name in vars(tensor) if "dynamo" in name] for tensor in tensors)


class Doubled(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return result * 2 if func is torch.sin else result


def test_function_modes_stay_on():
    """Torch 2.11 turns them off inside a trace, and 2.13 around it; the list that it restores them from was lost."""
    with Doubled():
        expected = run_twice(lambda x: x.sin() + torch.sin(x))
    with everything() as watch, Doubled() as mode:
        results = run_twice(lambda x: x.sin() + torch.sin(x))
        assert _get_current_function_mode_stack() == [mode]
    assert {each.outcome for each in watch.what_ifs} == {"removes", "no effect"}
    assert all(map(torch.equal, results, expected))


def test_nothing_of_the_traces_stays_alive():
    with dynx.watch():
        run_twice(lambda x: x * 2)  # torch keeps some objects of the first compilation in a process
    before = alive()
    with everything() as watch:
        run_twice(lambda x: x * 2)
    assert watch.what_ifs
    del watch
    assert alive() <= before
    assert not installed()


def test_arguments_of_a_call_are_freed():
    """dynx keeps what it needs to trace a call again, but not its tensors, which may be large."""
    compiled = torch.compile(lambda x: x + 1, backend="eager", dynamic=False)
    with everything():
        tensor = torch.ones(3)
        compiled(tensor)
        compiled(torch.ones(4))
        references = gc.get_referrers(tensor)
        assert not [each for each in references if type(each).__module__.startswith("dynx")]


def test_a_warning_is_still_shown_when_the_program_causes_it():
    """Python shows a warning once for each line: a trace of dynx must not use up the one time."""

    def warned(x, *, loud):
        if loud:
            warnings.warn("loud", UserWarning, stacklevel=1)
        return x + 1

    with warnings.catch_warnings(record=True) as caught, everything():
        warnings.simplefilter("default")
        compiled = torch.compile(warned, backend="eager", dynamic=False)
        for size in (3, 4):
            compiled(torch.ones(size), loud=False)
        compiled(torch.ones(4), loud=True)
    assert [str(each.message) for each in caught if each.category is UserWarning] == ["loud"]


def test_a_warning_that_was_shown_is_not_shown_again():
    """`catch_warnings` makes all modules forget which warnings they have shown: that of a trace of dynx does not."""

    def once():
        warnings.warn("once", UserWarning, stacklevel=1)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        once()
        with quiet(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
        once()
        assert len(caught) == 1
        with quiet():
            thread = threading.Thread(target=warnings.simplefilter, args=("default",))
            thread.start()
            thread.join()
        once()
    assert len(caught) == 2  # the program's own filters work as ever


def test_messages_that_torch_logs_once_are_left_to_the_program():
    """torch keeps such messages in a cache: a trace of dynx would use up the one time, without anybody seeing the message."""
    from torch._dynamo.variables import ctx_manager
    from torch._dynamo.variables import torch as of_torch

    logger = logging.getLogger("torch._dynamo.of_a_test")
    for module in (ctx_manager, of_torch):
        before = module.warning_once.cache_info().currsize
        with quiet():
            module.warning_once(logger, f"once in {module.__name__}")
        assert module.warning_once.cache_info().currsize == before
        module.warning_once(logger, f"once in {module.__name__}")
        assert module.warning_once.cache_info().currsize == before + 1


def test_messages_of_other_threads_are_not_dropped():
    """Only what the thread logs that traces for dynx is dropped, also while another thread logs."""
    said, logger, stop = [], logging.getLogger("torch._dynamo.of_a_test"), threading.Event()
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)

    def log():
        number = 0
        while not stop.is_set():
            logger.info("%s", number)
            number += 1

    thread = threading.Thread(target=log)
    thread.start()
    try:
        with everything():
            run_twice(lambda x: x * 3)
    finally:
        stop.set()
        thread.join()
        logger.removeHandler(handler)
    assert said == [str(number) for number in range(len(said))]


def test_a_trace_that_fails_leaves_the_state_of_torch():
    """A setting that makes the trace raise must be restored, and the next compilation of the program must succeed."""

    def rows(x):
        return [row.sum() for row in x]

    config = torch._dynamo.config
    before = config.get_config_copy()
    compiled = torch.compile(rows, backend="eager")
    with everything() as watch:
        for size in (3, 4, 5):
            compiled(torch.ones(size, 2))
    assert "raises" in {each.outcome for each in watch.what_ifs}
    assert config.get_config_copy() == before
    assert len(torch.compile(rows, backend="eager")(torch.ones(6, 2))) == 6


def test_a_global_that_the_program_deletes_is_freed(monkeypatch):
    """torch keeps the guards of a trace as long as objects that they guard: these guards must not keep the user's globals."""

    class Large:
        pass

    module = types.ModuleType("of_a_user")
    module.large, module.scale = Large(), 2
    monkeypatch.setitem(sys.modules, "of_a_user", module)  # torch 2.11 imports the module of a global
    exec("def f(x):\n    return x * scale", module.__dict__)
    reference = weakref.ref(module.large)
    with everything() as watch:
        run_twice(module.f)
        del module.large
        gc.collect()
        assert reference() is None
    assert watch.what_ifs


def test_no_code_of_a_class_runs_when_its_objects_are_copied():
    """Objects that changed since an earlier call are copied as they were; an object whose class frees something is not."""
    ran = []

    class Cache:
        def __init__(self):
            ran.append("init")
            self.keys = torch.ones(2)

        def __setattr__(self, name, value):
            object.__setattr__(self, name, value)

        def __copy__(self):
            ran.append("copy")

    class Handle(Cache):
        def __del__(self):
            ran.append("del")

    def attend(x, cache):
        cache.keys = torch.cat([cache.keys, x])
        return cache.keys.sum()

    for cls in (Cache, Handle):
        torch._dynamo.reset()
        ran.clear()
        with everything() as watch:
            cache = cls()
            for _ in range(4):
                torch.compile(attend, backend="eager", dynamic=False)(torch.ones(3), cache)
        assert watch.what_ifs
        assert not watch.troubles
        assert ran == ["init"]
        del cache
