"""Records of real compilations: ids, attempts, outcomes and reasons; no hook or reference remains in torch."""

from __future__ import annotations

import gc
import threading

import pytest
import torch

import dynx
from dynx._torch.hooks import installed
from dynx._trace import bus
from dynx._trace.compile_scope import Generations
from dynx.records import Trouble


def add(x):
    return x + 1


def printing(x):
    y = x + 1
    print(end="")
    return y * 2


def test_generation_of_a_compile_grows_with_each_dynamo_reset():
    """Compile ids repeat after a reset; together with the generation they are unique."""
    with dynx.watch() as w:
        for _ in range(3):
            torch.compile(add, backend="eager")(torch.ones(3))
            torch._dynamo.reset()
    assert {compile.id for compile in w.compiles} == {"0/0"}
    assert len({compile.generation for compile in w.compiles}) == 3


def test_dynamo_reset_is_detected_by_a_compile_id_that_does_not_grow():
    """`torch._dynamo.reset` is not patched: an id that does not grow means that there was a reset."""
    ids = Generations()
    assert [ids.register(frame, nth) for frame, nth in [(0, 0), (1, 0), (0, 1), (2, 0)]] == [0, 0, 0, 0]
    assert [ids.register(frame, nth) for frame, nth in [(0, 0), (0, 1), (1, 0)]] == [1, 1, 1]
    assert ids.register(0, 1) == 2
    assert ids.register(0, 2) == 2


def test_compile_record_lists_restarted_attempts_and_their_graph_break_counts_once():
    with dynx.watch() as w:
        torch.compile(printing, backend="eager")(torch.ones(3))
    first, resume_function = w.compiles
    assert [attempt.outcome for attempt in first.attempts] == ["restarted", "committed"]
    assert first.attempts[0].reason == "Failed to trace builtin operator"
    assert resume_function.resumes == printing.__code__.co_firstlineno + 2
    assert [(graph_break.count, graph_break.location.function) for graph_break in w.graph_breaks] == [(1, "printing")]


def test_backend_error_is_recorded_as_a_failed_compile():
    def backend(graph_module, inputs):
        raise RuntimeError("no such device")

    with dynx.watch() as w, pytest.raises(Exception, match="no such device"):
        torch.compile(add, backend=backend)(torch.ones(3))
    (compile,) = w.compiles
    assert (compile.outcome, compile.attempts[-1].outcome) == ("failed", "failed")
    assert "no such device" in compile.reason


def test_graph_break_with_fullgraph_is_recorded_as_a_failed_compile():
    with dynx.watch() as w, pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(printing, backend="eager", fullgraph=True)(torch.ones(3))
    assert [compile.outcome for compile in w.compiles] == ["failed"]


def test_function_without_operations_is_recorded_as_skipped_with_a_reason():
    def identity(x):
        return x

    with dynx.watch() as w:
        torch.compile(identity, backend="eager")(torch.ones(3))
    (compile,) = w.compiles
    assert compile.outcome == "skipped"
    assert compile.reason


def test_function_without_tensor_arguments_is_recorded_as_skipped():
    """After a graph break the helper is called as a plain function; Dynamo skips it without a message."""

    def shout(text):
        print(text, end="")

    def f(x):
        y = x + 1
        shout("")
        return y * 2

    with dynx.watch() as w:
        torch.compile(f, backend="eager")(torch.ones(3))
    assert w.skipped[0].location.function.endswith("shout")
    assert [skipped.reason for skipped in w.skipped] == ["no tensor among its arguments"]


def test_recompile_reason_lists_all_lines_that_requested_the_guard():
    """torch names only the first line; the user may have to change another one."""

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.n = 1

        def forward(self, x):
            y = x * self.n
            return y + self.n

    net = Net()
    compiled = torch.compile(net, backend="eager")
    with dynx.watch() as w:
        compiled(torch.ones(2))
        net.n = 2
        compiled(torch.ones(2))
    (reason,) = w.recompiles[0].reasons
    line = Net.forward.__code__.co_firstlineno
    assert reason.location.line == line + 1
    assert line + 1 in [location.line for location in reason.requesters]


def test_recompile_of_a_cache_entry_compiled_before_the_watch_has_a_reason():
    """Users start a watch when the program is already slow."""
    compiled = torch.compile(add, backend="eager")
    compiled(torch.ones(3))
    with dynx.watch() as w:
        compiled(torch.ones(4))
    (reason,) = w.recompiles[0].reasons
    assert (reason.kind, reason.expected, reason.got) == ("size", "3", "4")


def test_recompile_reason_has_no_old_global_state_if_compiled_before_the_watch():
    """torch does not keep the global state of a cache entry, and dynx does not guess it."""
    compiled = torch.compile(add, backend="eager")
    compiled(torch.ones(3))
    with dynx.watch() as w, torch.no_grad():
        compiled(torch.ones(3))
    (reason,) = w.recompiles[0].reasons
    assert (reason.expected, reason.got) == (None, "grad_mode False")


def test_recompile_reason_is_recorded_with_error_on_recompile():
    compiled = torch.compile(add, backend="eager")
    with dynx.watch() as w, torch._dynamo.config.patch(error_on_recompile=True):
        compiled(torch.ones(3))
        with pytest.raises(torch._dynamo.exc.RecompileError):
            compiled(torch.ones(4))
    (recompile,) = w.recompiles
    assert (recompile.outcome, recompile.reasons[0].kind) == ("failed", "size")


def test_compilations_on_other_threads_are_recorded():
    with dynx.watch() as w:
        thread = threading.Thread(target=lambda: torch.compile(add, backend="eager")(torch.ones(3)))
        thread.start()
        thread.join()
    assert len(w.compiles) == 1


@pytest.mark.slow
def test_watch_keeps_no_tensor_frame_or_graph_of_torch_alive():
    """Records outlive tensors, frames and graphs. torch keeps some of these objects alive itself; dynx must add none."""

    def program():
        compiled = torch.compile(printing, backend="eager")
        compiled(torch.ones(1000))
        compiled(torch.ones(5))

    def alive_after(runs):
        for _ in range(runs):
            program()
            torch._dynamo.reset()
        gc.collect()
        names = ("FakeTensor", "InstructionTranslator", "OutputGraph", "ShapeEnv", "CodeType")
        return sum(type(object).__name__ in names for object in gc.get_objects())

    def growth():
        before = alive_after(0)
        return alive_after(5) - before

    growth()  # warm-up of torch
    plain = [growth()]
    with dynx.watch() as w:
        watched = growth()
    plain.append(growth())
    assert w.recompiles
    assert watched - max(plain) < 5, "one object per run is a leak; torch's own count varies by one or two"


def test_torch_hooks_are_installed_only_while_a_watch_is_open():
    before = installed()  # none, but under `make wide-ids`
    with dynx.watch():
        inside = installed()
        with dynx.watch():
            assert installed() == inside
        assert installed() == inside
    assert set(inside) > set(before)
    assert installed() == before


def test_trace_bus_listener_that_raises_does_not_affect_other_listeners(count_compiles):
    records = []

    def fails(record):
        raise RuntimeError("full")

    first, second = bus.listen(fails), bus.listen(records.append)
    try:
        assert torch.compile(add, backend=count_compiles)(torch.ones(3)).sum() == 6
    finally:
        first.remove()
        second.remove()
    assert count_compiles.count == 1
    assert any(isinstance(record, Trouble) and "full" in record.why for record in records)
