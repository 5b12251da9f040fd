"""Inspect and change the cache of compiled code while other threads call the compiled function."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import re
import subprocess
import sys
import threading
import time
import weakref

import pytest
import torch

import dynx
from dynx import guards
from dynx._torch import hooks
from dynx._torch.cache import gate, quiescence
from dynx._torch.cache.stacks import Stacks
from dynx.errors import StaleEntry, UsageError
from dynx.guards._cache.entries import raw_of

CYCLES = int(os.environ.get("DYNX_CYCLES", "10"))  # `make threads` runs 1000
# where there is no GPU, the CUDA build of torch 2.11 crashes in a second thread that compiles (`_ensureCUDADeviceGuardSet`)
MORE_CALLERS = 0 if torch.__version__.startswith("2.11") else 1
RESET_IN_A_CALL = """
import threading, torch
from torch._dynamo.eval_frame import _debug_get_cache_entry_list
from dynx import guards

def f(x):
    return x + 1

inside, go = threading.Event(), threading.Event()

def waits(_):
    inside.set()
    return go.wait()

def reset():
    inside.wait()
    threading.Timer(1.0, go.set).start()
    {reset}

compiled = torch.compile(f, backend="eager")
compiled(torch.ones(3))
root = _debug_get_cache_entry_list(f.__code__)[0].guard_manager.root
root.add_epilogue_lambda_guard(waits, ["waits"], None)
thread = threading.Thread(target=reset)
thread.start()
compiled(torch.ones(3))  # evaluates that guard while the other thread resets
thread.join()
assert not guards.inspect(f).entries
print("alive")
"""


RESETS = ["torch._dynamo.reset()", "guards.evict(guards.inspect(f).entries[0])", "guards.reset(f)"]


@pytest.mark.slow
@pytest.mark.parametrize("reset", RESETS)
def test_reset_waits_until_another_thread_has_evaluated_its_guards(reset):
    """torch frees the guard that is being evaluated, and crashes; dynx waits."""
    program = RESET_IN_A_CALL.format(reset=reset)
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=600, check=False)
    if reset.startswith("torch"):
        assert result.returncode != 0  # torch reads freed memory: mostly SIGSEGV, at times an exception or SIGABRT
    else:
        assert (result.returncode, result.stdout) == (0, b"alive\n"), result.stderr


@pytest.mark.slow
def test_evict_and_reset_during_calls_in_other_threads_neither_crash_nor_leak():
    over = threading.Event()
    wrong, errors, evicted, managers = [], [], [], weakref.WeakSet()
    compiled = torch.compile(lambda x, n: x * n, backend="eager", dynamic=False)

    def call():
        while not over.is_set():
            wrong.extend(n for n in (2, 3) if compiled(torch.ones(3), n)[0] != n)

    def cycle(turn):
        while not (entries := guards.inspect(compiled).entries):  # until the callers have compiled it again
            time.sleep(0)
        for entry in entries:
            with contextlib.suppress(StaleEntry):
                managers.add(raw_of(entry).guards)
                guards.evict(entry)
                evicted.append(entry.id)
        dynx.would_recompile(compiled, torch.ones(3), 2)
        if turn % 2:
            guards.reset(compiled)

    def cycles():
        try:
            for turn in range(CYCLES):
                cycle(turn)
        except BaseException as error:  # noqa: BLE001 - raised by the assertion below
            errors.append(error)
        over.set()

    with torch._dynamo.config.patch(recompile_limit=10**6, accumulated_recompile_limit=10**6):
        threads = [threading.Thread(target=target) for target in (cycles, *[call] * MORE_CALLERS)]
        for thread in threads:
            thread.start()
        call()
        for thread in threads:
            thread.join()
    assert (wrong, errors) == ([], [])
    assert len(evicted) > CYCLES / 2
    guards.reset(compiled)
    gc.collect()
    assert list(managers) == []
    assert guards.inspect(compiled).entries == ()


def test_reset_raises_while_the_same_thread_compiles():
    def backend(gm, inputs):
        guards.reset(compiled)

    compiled = torch.compile(lambda x: x + 1, backend=backend)
    with pytest.raises(Exception, match="this thread is compiling") as raised:
        compiled(torch.ones(3))
    assert isinstance(raised.value.__cause__ or raised.value, (UsageError, torch._dynamo.exc.BackendCompilerFailed))


def test_the_error_of_a_pin_that_cannot_be_removed_now_names_what_to_call_later():
    compiled = torch.compile(lambda x: x + 1, backend="eager")
    compiled(torch.ones(3))
    pin = guards.pin(guards.inspect(compiled).entries[0], unsafe_ignore_backend=True)

    def backend(gm, inputs):
        pin.remove()

    with pytest.raises(Exception, match=r"Pin\.remove failed: this (.|\n)*call Pin\.remove after the compilation"):
        torch.compile(lambda x: x - 1, backend=backend)(torch.ones(3))
    assert guards.inspect(compiled).entries
    pin.remove()
    assert guards.inspect(compiled).entries == ()


def test_reset_timeout_error_names_the_thread_inside_compiled_code(monkeypatch):
    monkeypatch.setattr("dynx._torch.cache.quiescence._TIMEOUT", 0.05)
    messages = []

    def reset():
        try:
            guards.reset(compiled)
        except UsageError as error:
            messages.append(str(error))

    @torch.compiler.disable
    def wait():
        thread = threading.Thread(target=reset)
        thread.start()
        thread.join()

    def waits(x):
        wait()
        return x + 1

    compiled = torch.compile(waits, backend="eager")
    compiled(torch.ones(3))
    assert "while compiled code runs: thread 'MainThread' was in compiled code at each of " in messages[0]
    guards.reset(compiled)
    assert guards.inspect(compiled).entries == ()


def test_thread_with_a_truncated_stack_counts_as_running_compiled_code():
    """A stack that is read holds at most a hundred frames; during a compilation these may all be frames of torch."""
    inside, over = threading.Event(), threading.Event()

    def deep(n):
        if n:
            return deep(n - 1)
        inside.set()
        return over.wait()

    threads = [threading.Thread(target=deep, args=(200,), name="deep"), threading.Thread(target=over.wait)]
    for thread in threads:
        thread.start()
    inside.wait()
    assert busy_threads() == {threads[0].ident}
    over.set()
    for thread in threads:
        thread.join()
    assert busy_threads() == set()


def busy_threads():
    with Stacks() as stacks:
        return quiescence._look(stacks.read(), quiescence._reader_lines()).busy


@pytest.fixture
def entry_to_evict():
    """A cache entry of a function that no other thread calls: the wait is for all compiled code."""
    compiled = torch.compile(lambda x: x - 1, backend="eager")
    compiled(torch.ones(2))
    return guards.inspect(compiled).entries[0]


@contextlib.contextmanager
def calling(count, call):
    """Call a function in a loop in several threads."""
    over, errors = threading.Event(), []

    def loop():
        try:
            while not over.is_set():
                call()
        except BaseException as error:  # noqa: BLE001 - raised by the assertion below
            errors.append(error)

    threads = [threading.Thread(target=loop, name=f"caller-{number}") for number in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield threads
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert errors == []


def compiled_with(pause):
    """Return a function that calls `pause` after a graph break, compiled already: torch 2.11 compiles in one thread only."""

    def f(x):
        y = x + 1
        torch.compiler.disable(pause)()
        return y * 2

    compiled = torch.compile(f, backend="eager")
    compiled(torch.ones(3))
    compiled(torch.ones(3))
    return compiled


def test_evict_succeeds_while_ten_threads_call_compiled_code(monkeypatch, entry_to_evict):
    """At every moment one of them is in a call, so a server would never get a cache entry evicted."""
    monkeypatch.setattr("dynx._torch.cache.quiescence._TIMEOUT", 5.0)
    compiled = compiled_with(lambda: time.sleep(0.05))
    x = torch.ones(3)
    with calling(10, lambda: compiled(x)):
        time.sleep(0.2)
        guards.evict(entry_to_evict)
        assert not hooks.installed(), "calls are as fast as before"
    with pytest.raises(StaleEntry):
        guards.evict(entry_to_evict)


def test_evict_succeeds_beside_many_threads_that_do_nothing(entry_to_evict):
    """Reading their stacks takes longer than Python lets a thread run undisturbed."""
    over = threading.Event()

    def deep(n):
        return deep(n - 1) if n else over.wait()

    threads = [threading.Thread(target=deep, args=(50,)) for _ in range(60)]
    for thread in threads:
        thread.start()
    try:
        begin = time.monotonic()
        guards.evict(entry_to_evict)
        assert time.monotonic() - begin < 5
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_calls_that_a_running_call_waits_for_are_not_held_forever(entry_to_evict):
    """The compiled function waits for another thread that calls compiled code: holding that thread would stop both."""
    inside, filled = threading.Event(), threading.Event()
    calls = itertools.count()

    def wait_for_the_other_thread():
        if next(calls) >= 2:  # not while compiling
            inside.set()
            assert filled.wait(20)

    waiting, filling = compiled_with(wait_for_the_other_thread), compiled_with(lambda: None)

    def fill():
        inside.wait()
        time.sleep(0.02)  # until the gate is closed
        filling(torch.ones(3))
        filled.set()

    threads = [threading.Thread(target=fill), threading.Thread(target=waiting, args=(torch.ones(3),))]
    for thread in threads:
        thread.start()
    inside.wait()
    guards.evict(entry_to_evict)
    for thread in threads:
        thread.join()
    assert filled.is_set()


def test_compiled_code_that_a_running_call_calls_is_not_held(entry_to_evict):
    inner = compiled_with(lambda: None)
    inside, calls = threading.Event(), itertools.count()

    def call_inner():
        if next(calls) >= 2:
            inside.set()
            time.sleep(0.03)  # until the gate is closed
            inner(torch.ones(3))

    outer = compiled_with(call_inner)
    thread = threading.Thread(target=outer, args=(torch.ones(3),))
    thread.start()
    inside.wait()
    begin = time.monotonic()
    guards.evict(entry_to_evict)
    thread.join()
    assert time.monotonic() - begin < 0.1, "before the gate opens for the first time"


def test_timeout_error_names_all_threads_that_stayed_in_compiled_code_and_no_other(monkeypatch, entry_to_evict):
    monkeypatch.setattr("dynx._torch.cache.quiescence._TIMEOUT", 0.5)
    inside, over, calls = threading.Semaphore(0), threading.Event(), itertools.count()

    def stay():
        if next(calls) >= 2:
            inside.release()
            over.wait()

    staying, short = compiled_with(stay), compiled_with(lambda: None)
    threads = [threading.Thread(target=staying, args=(torch.ones(3),), name=f"stays-{number}") for number in range(2)]
    for thread in threads:
        thread.start()
    inside.acquire(), inside.acquire()
    x = torch.ones(3)
    try:
        with calling(3, lambda: short(x)), pytest.raises(UsageError) as caught:
            guards.evict(entry_to_evict)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert re.search(r"threads 'stays-\d', 'stays-\d' were in compiled code at each of \d+ looks", str(caught.value))
    assert "caller" not in str(caught.value)
    guards.evict(entry_to_evict)


def test_more_than_a_hundred_threads_are_refused_with_the_reason(monkeypatch, entry_to_evict):
    """Python shows the stacks of a hundred threads; one that is not shown may be in compiled code."""
    monkeypatch.setattr("dynx._torch.cache.quiescence._TIMEOUT", 0.3)
    over = threading.Event()
    threads = [threading.Thread(target=over.wait) for _ in range(110)]
    for thread in threads:
        thread.start()
    try:
        with pytest.raises(UsageError, match="more than 100 threads are running"):
            guards.evict(entry_to_evict)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    guards.evict(entry_to_evict)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_process_forked_while_calls_are_held_can_call_compiled_code():
    compiled = compiled_with(lambda: None)
    with gate.closed(quiescence._reader_codes):
        forked = []

        def fork():
            child = os.fork()
            if child == 0:
                compiled(torch.ones(3))
                os._exit(7)
            forked.append(os.waitpid(child, 0)[1])

        thread = threading.Thread(target=fork)
        thread.start()
        thread.join(20)
    assert os.waitstatus_to_exitcode(forked[0]) == 7


def test_two_threads_evict_at_once():
    compiled = torch.compile(lambda x, n: x - n, backend="eager", dynamic=False)
    for n in range(6):
        compiled(torch.ones(2), n)
    entries = iter(guards.inspect(compiled).entries)
    lock = threading.Lock()

    def evict_all():
        while True:
            with lock:
                entry = next(entries, None)
            if entry is None:
                return
            guards.evict(entry)

    threads = [threading.Thread(target=evict_all) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert guards.inspect(compiled).entries == ()
