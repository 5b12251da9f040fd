"""How long functions run uncompiled after torch gave them up, by samples of all stacks."""

from __future__ import annotations

import os
import threading
import time
import warnings

import pytest
import torch

import dynx
from dynx._trace.eager_times import EagerTimes
from dynx.records import Compile, EagerTime, GaveUp, Location
from dynx.report import terminal


def spin(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        sum(range(100))


def given_up(x, number):
    spin(0.01) if not torch.compiler.is_compiling() else None
    return x + number


def run(calls, between=0.0):
    torch._dynamo.reset()
    compiled = torch.compile(given_up, backend="eager", dynamic=False)
    with dynx.watch() as watch:
        for number in range(calls):
            compiled(torch.ones(2), number)
            spin(between)
    return watch


def test_a_function_that_gave_up_is_sampled_from_then_on():
    watch = run(50)
    (found,) = watch.eager_times
    assert found.location == watch.gave_up[0].location
    assert found.samples >= 5
    assert 0.5 < found.share <= 1
    assert found.seconds < sum(range(50))


def test_the_share_is_of_the_time_since_then():
    (most,), (half,) = run(50).eager_times, run(40, between=0.01).eager_times
    assert half.share < most.share


def test_the_finding_and_the_screen_say_so(capsys):
    watch = run(60)
    (finding,) = watch.findings
    (found,) = watch.eager_times
    assert (finding.rule, finding.uncompiled_seconds) == ("DX301", found.seconds)
    from rich import print as show

    show(terminal(watch.run))
    assert f"uncompiled for {100 * found.share:.0f} % of the time" in " ".join(capsys.readouterr().out.split())


def test_a_program_without_such_a_function_has_no_thread_that_samples():
    before = len(os.listdir("/proc/self/task"))
    with dynx.watch() as watch:
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
        assert len(os.listdir("/proc/self/task")) == before
    assert watch.eager_times == ()


def test_a_function_that_torch_cannot_resume_is_sampled():
    @torch.compile(backend="eager")
    def total(x):
        for _ in range(2):
            x = x + 1
            if x.sum() > 0:
                try:
                    print(end="")
                finally:
                    spin(0.01)
        return x

    with dynx.watch() as watch:
        for _ in range(15):
            total(torch.ones(2))
    assert {compile.outcome for compile in watch.compiles} >= {"skipped"}
    assert [each.location.function.rpartition(".")[2] for each in watch.eager_times] == ["total"]
    assert watch.eager_times[0].samples > 0


def test_compiled_code_inside_an_uncompiled_function_does_not_count():
    inner = torch.compile(lambda x: [x := (x * 1.01).sin() for _ in range(400)][-1], backend="eager")

    def outer(x, number):
        return inner(x) + number if not torch.compiler.is_compiling() else x + number

    compiled = torch.compile(outer, backend="eager", dynamic=False)
    x = torch.ones(20_000)
    with dynx.watch() as watch:
        for number in range(40):
            compiled(x, number)
    (found,) = watch.eager_times
    assert found.share < 0.5


def test_threads_of_the_program_are_not_changed():
    names = []

    def count():
        names.append([thread.name for thread in threading.enumerate()])

    compiled = torch.compile(given_up, backend="eager", dynamic=False)
    with dynx.watch():
        for number in range(12):
            compiled(torch.ones(2), number)
        count()
    assert not [name for name in names[0] if "dynx" in name.lower() or name.startswith("Dummy")]


@pytest.mark.parametrize(
    ("innermost", "is_uncompiled"),
    [
        ("/app/model.py", True),
        ("/lib/torch/nn/modules/module.py", True),  # Python code of torch that the function calls
        ("/app/convert_frame.py", True),
        ("<eval_with_key>.3", False),
        ("/cache/of/me/36/c36jfx6sdb2zh4i24rzco7yfnjpf335zfeg4vibnytxca73ph5fs.py", False),  # of inductor
        ("/lib/torch/_functorch/_aot_autograd/runtime_wrappers.py", False),
        ("/lib/torch/_dynamo/convert_frame.py", False),
    ],
)
def test_a_stack_is_uncompiled_unless_it_compiles_or_runs_compiled_code(innermost, is_uncompiled, tmp_path):
    path = tmp_path / "model.py"
    path.write_text("def f(x):\n    return x + 1\n")
    times = EagerTimes()
    times.see(GaveUp(0, "0/8", Location(str(path), 1, "f"), "recompile_limit", 8))
    times.remove()
    stack = f'Thread 0x1 (most recent call first):\n  File "{innermost}", line 5 in g\n  File "{path}", line 2 in f\n'
    before = times.records[0].samples
    times._take(stack.encode(), 0.02)
    assert times.records[0].samples - before == is_uncompiled
    times._take(stack.replace("line 2", "line 3").encode(), 0.02)  # another function of this name, below
    assert times.records[0].samples - before == is_uncompiled


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
def test_a_forked_child_samples_on_its_own_and_does_not_wait_for_the_thread_of_its_parent():
    times = EagerTimes()
    record = GaveUp(0, "0/8", Location(__file__, 1, "f"), "recompile_limit", 8)
    times.see(record)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12: a thread samples
        child = os.fork()
    if child == 0:
        times.remove()
        is_right = times.records == ()
        times.see(record)
        times.remove()
        os._exit(0 if is_right and len(times.records) == 1 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    times.remove()
    assert len(times.records) == 1


def test_a_failure_to_sample_is_a_record_and_nothing_else(monkeypatch):
    def fail():
        raise OSError("No space left on device")

    monkeypatch.setattr("dynx._torch.cache.stacks.TemporaryFile", fail)
    watch = run(12)
    (trouble,) = watch.troubles
    assert trouble.why == "No space left on device"
    assert [each.samples for each in watch.eager_times] == [0]


@pytest.mark.parametrize(
    "record",
    [
        GaveUp(0, "0/8", Location("library.py", 1, "f", library="library"), "recompile_limit", 8),
        GaveUp(0, "0/8", Location("a.py", 1, "f"), "recompile_limit", 8, fatal=True),
        Compile(0, "0/0", Location("a.py", 1, "f"), "compiled", 1.0),
    ],
)
def test_what_does_not_run_uncompiled_in_the_users_code_is_not_sampled(record):
    times = EagerTimes()
    times.see(record)
    times.remove()
    assert times.records == ()


def test_a_share_is_of_nothing_at_first():
    assert EagerTime(Location("a.py", 1, "f"), 0.0, 0.0, 0).share == 0.0
