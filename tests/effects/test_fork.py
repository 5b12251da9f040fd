"""`isolate="fork"`: each side runs in a process of its own, so that objects that cannot be copied are not shared."""

import os
import signal
import sys
import threading

import pytest
import torch
from support.effects_programs import PROGRAMS, same_on_this_torch

import dynx
from dynx import guards
from dynx.effects._check.child import ChildDied, in_child
from dynx.errors import UsageError


@pytest.fixture(autouse=True)
def process_that_can_be_forked():
    if torch.cuda.is_available():
        pytest.skip('isolate="fork" is refused on a machine with CUDA: torch cannot use it in a forked process')


def check_forked(fn, *args, **options):
    """Return the report of a check in forked processes; None where torch refuses to compute gradients in them."""
    try:
        return dynx.check(fn, *args, isolate="fork", **options)
    except UsageError as error:
        if "a forked process cannot compute gradients here" in str(error):
            assert torch.version.cuda is not None
            return None
        raise


@pytest.mark.slow
@pytest.mark.parametrize("name", same_on_this_torch())
def test_programs_that_do_the_same(name):
    torch.manual_seed(0)
    fn, args = PROGRAMS[name]()
    report = check_forked(fn, *args)
    if report is not None:
        report.assert_ok()
        assert not report.shared


def lost(cache, x):
    cache.move_to_end("a")
    return x + 1


@pytest.mark.slow
def test_differences_are_those_that_copies_show():
    from collections import OrderedDict

    reports = [dynx.check(lost, OrderedDict(a=1, b=2), torch.ones(2), isolate=isolate) for isolate in ("copy", "fork")]
    assert reports[0] == reports[1]
    assert [diff.path for diff in reports[1].diffs] == ["args[0]"]
    assert reports[1].stage == "Dynamo"


@pytest.mark.slow
def test_with_inductor_after_the_parent_has_used_several_threads():
    """OpenMP's threads are not in a forked child: with more than one thread it would wait for them without end."""
    big = torch.randn(600, 600)
    _ = big @ big

    def forward(x, w):
        return (x @ w).relu().sum()

    report = check_forked(forward, big, big.clone().requires_grad_(), backend="inductor", calls=1)
    assert report is None or report.ok


def torch_computes_gradients_in_a_fork():
    child = os.fork()
    if child == 0:
        try:
            torch.ones(2, requires_grad=True).sum().backward()
        finally:
            os._exit(int(sys.exc_info()[0] is not None))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.slow
def test_gradients_in_a_fork_of_a_process_that_has_computed_some():
    """Torch cannot if its autograd engine has threads, which a forked process lacks. That is no difference."""
    torch.ones(2, requires_grad=True).sum().backward()
    report = check_forked(lambda x: x * 2, torch.ones(2, requires_grad=True), backend="aot_eager")
    assert (report is not None) == torch_computes_gradients_in_a_fork()
    assert check_forked(lambda x: x * 2, torch.ones(2), backend="aot_eager").ok


@pytest.mark.slow
def test_rounding_is_no_difference_and_a_wrong_number_is():
    def low(gm, inputs):
        return lambda *args: [out.double().float() * (1 + 1e-7) for out in gm(*args)]

    def wrong(gm, inputs):
        return lambda *args: [out * 1.01 for out in gm(*args)]

    def forward(x):
        return (x.sin() * x.cos()).cumsum(0)

    x = torch.linspace(0, 3, 50)
    assert dynx.check(forward, x, isolate="fork", backend=low).ok
    (diff,) = dynx.check(forward, x, isolate="fork", backend=wrong).diffs
    assert (diff.path, diff.kind) == ("result", "tensor")


def numbers():
    yield from range(100)


@pytest.mark.slow
def test_an_object_that_cannot_be_copied_is_not_shared_by_the_sides():
    """Copies share the generator: the compiled side goes on where eager code has stopped."""
    generator = numbers()

    def forward(x):
        return x + next(generator)

    assert dynx.check(forward, torch.ones(2), calls=1).shared
    position = next(generator)
    report = dynx.check(forward, torch.ones(2), calls=1, isolate="fork")
    assert not report.diffs
    assert not report.shared
    assert next(generator) == position + 1


@pytest.mark.slow
def test_compiled_code_that_ends_the_process_is_a_difference():
    def crashing(gm, inputs):
        def run(*args):
            os.kill(os.getpid(), signal.SIGSEGV)

        return run

    report = dynx.check(lambda x: x + 1, torch.ones(2), isolate="fork", backend=crashing)
    (diff,) = report.diffs
    assert (diff.path, diff.kind, diff.compiled) == ("exception", "exception", "the process ends: signal SIGSEGV")


def test_eager_code_that_ends_the_process_is_refused():
    with pytest.raises(UsageError, match="eager code ends the process: exit code 3"):
        dynx.check(lambda x: os._exit(3), torch.ones(2), isolate="fork")


@pytest.mark.slow
def test_exceptions_are_compared_by_class_and_message():
    def forward(items, x):
        items.append(1)
        raise KeyError("missing") if len(items) else ValueError

    dynx.check(forward, [], torch.ones(2), isolate="fork")

    def wrong(gm, inputs):
        raise RuntimeError("not today")

    report = dynx.check(lambda x: x + 1, torch.ones(2), isolate="fork", backend=wrong)
    assert "exception" in {diff.path for diff in report.diffs}


@pytest.mark.slow
def test_the_caller_keeps_its_objects_its_cache_its_threads_and_its_random_numbers():
    steps = []

    def forward(x):
        steps.append(torch.rand(()).item())
        return x + len(steps)

    compiled = torch.compile(forward, backend="eager")
    compiled(torch.ones(2))
    seen, threads, state = guards.inspect(compiled), torch.get_num_threads(), torch.get_rng_state()
    kept = list(steps)
    dynx.check(compiled, torch.ones(2), isolate="fork")
    assert guards.inspect(compiled) == seen
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)
    assert steps == kept


@pytest.mark.slow
def test_beside_other_threads():
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        dynx.check(lambda x: x * 2, torch.ones(3), isolate="fork").assert_ok()
    finally:
        stop.set()
        thread.join()


def test_refused_where_cuda_is_available_and_where_there_is_no_fork(monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(torch.cuda, "is_available", lambda: True)
        with pytest.raises(UsageError, match="CUDA is available"):
            dynx.check(lambda x: x, torch.ones(2), isolate="fork")
    monkeypatch.delattr(os, "fork")
    with pytest.raises(UsageError, match="has no fork"):
        dynx.check(lambda x: x, torch.ones(2), isolate="fork")


def test_bisect_needs_one_process():
    with pytest.raises(UsageError, match="bisect=True needs one process"):
        dynx.check(lambda x: x, torch.ones(2), isolate="fork", bisect=True)


class Unpicklable(Exception):
    def __init__(self, lock):
        super().__init__("locked")
        self.lock = lock


def raises(error):
    raise error


def test_what_a_child_returns_raises_or_cannot_pass_on():
    assert in_child(lambda: {"a": torch.ones(2).sum()}) == {"a": torch.tensor(2.0)}
    with pytest.raises(ZeroDivisionError):
        in_child(lambda: 1 // 0)
    with pytest.raises(RuntimeError, match="Unpicklable: locked"):
        in_child(lambda: raises(Unpicklable(threading.Lock())))
    with pytest.raises(UsageError, match="cannot be passed between processes"):
        in_child(threading.Lock)
    with pytest.raises(ChildDied, match="exit code 4"):
        in_child(lambda: os._exit(4))


def test_a_child_is_killed_when_the_parent_is_interrupted(monkeypatch):
    wait, killed = os.waitpid, []

    def interrupted(pid, options):
        if not killed:
            killed.append(pid)
            raise KeyboardInterrupt
        return wait(pid, options)

    monkeypatch.setattr(os, "waitpid", interrupted)
    with pytest.raises(KeyboardInterrupt):
        in_child(threading.Event().wait)
    with pytest.raises(ProcessLookupError):
        os.kill(killed[0], 0)
