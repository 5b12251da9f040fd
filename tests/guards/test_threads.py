"""Inspect and change the cache of compiled code while other threads call the compiled function."""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
import threading
import time
import weakref

import pytest
import torch
from sampled import sampled

import dynx
from dynx import guards
from dynx._torch.cache import quiescence
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


@pytest.mark.parametrize("reset", sampled(RESETS, 3, start=2))
def test_reset_waits_until_another_thread_has_evaluated_its_guards(reset):
    """torch frees the guard that is being evaluated, and crashes; dynx waits."""
    program = RESET_IN_A_CALL.format(reset=reset)
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=600, check=False)
    if reset.startswith("torch"):
        assert result.returncode != 0  # torch reads freed memory: mostly SIGSEGV, at times an exception or SIGABRT
    else:
        assert (result.returncode, result.stdout) == (0, b"alive\n"), result.stderr


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
    assert "thread 'MainThread' has been calling compiled code" in messages[0]
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
    assert busy_thread() == threads[0].ident
    over.set()
    for thread in threads:
        thread.join()
    assert busy_thread() is None


def busy_thread():
    with quiescence._Stacks() as stacks:
        return quiescence._busy_thread(stacks.read(), quiescence._reader_lines())
