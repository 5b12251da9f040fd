"""The bus on real compilations: keys, attempts, commits, and nothing left behind."""

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


def test_the_generation_grows_with_each_reset():
    """torch gives the same compile ids again after a reset; the pair is unique."""
    keys = []
    with dynx.watch() as w:
        for _ in range(3):
            torch.compile(add, backend="eager")(torch.ones(3))
            torch._dynamo.reset()
    keys = [each.key for each in w.compiles]
    assert {key[1] for key in keys} == {"0/0"}
    assert len({key[0] for key in keys}) == 3


def test_generations_from_ids_alone():
    ids = Generations()
    assert [ids.of(*pair) for pair in [(0, 0), (1, 0), (0, 1), (2, 0)]] == [0, 0, 0, 0]
    assert [ids.of(*pair) for pair in [(0, 0), (0, 1), (1, 0)]] == [1, 1, 1]
    assert ids.of(0, 1) == 2
    assert ids.of(0, 2) == 2


def test_thrown_away_attempts_are_labelled_and_counted_once():
    with dynx.watch() as w:
        torch.compile(printing, backend="eager")(torch.ones(3))
    first, rest = w.compiles
    assert [attempt.outcome for attempt in first.attempts] == ["restarted", "committed"]
    assert first.attempts[0].reason == "Failed to trace builtin operator"
    assert rest.resumes == printing.__code__.co_firstlineno + 2
    assert [(each.count, each.location.function) for each in w.graph_breaks] == [(1, "printing")]


def test_an_attempt_that_fails_is_not_a_compile():
    def backend(graph_module, inputs):
        raise RuntimeError("no such device")

    with dynx.watch() as w, pytest.raises(Exception, match="no such device"):
        torch.compile(add, backend=backend)(torch.ones(3))
    (compile,) = w.compiles
    assert (compile.outcome, compile.attempts[-1].outcome) == ("failed", "failed")
    assert "no such device" in compile.reason


def test_a_break_under_fullgraph_fails_the_compile():
    with dynx.watch() as w, pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(printing, backend="eager", fullgraph=True)(torch.ones(3))
    assert [each.outcome for each in w.compiles] == ["failed"]


def test_a_function_without_operations_is_skipped_and_says_why():
    def identity(x):
        return x

    with dynx.watch() as w:
        torch.compile(identity, backend="eager")(torch.ones(3))
    (compile,) = w.compiles
    assert compile.outcome == "skipped"
    assert compile.reason


def test_a_function_without_tensors_is_left_alone_and_told():
    """After a break the helper is called as a plain function; Dynamo looks at it and says nothing."""

    def shout(text):
        print(text, end="")

    def f(x):
        y = x + 1
        shout("")
        return y * 2

    with dynx.watch() as w:
        torch.compile(f, backend="eager")(torch.ones(3))
    assert w.skipped[0].location.function.endswith("shout")
    assert [each.reason for each in w.skipped] == ["no tensor among its arguments"]


def test_every_line_that_asked_for_a_guard_is_named():
    """torch names the first; the second may be the one to change."""

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
    assert line + 1 in [each.line for each in reason.requesters]


def test_an_entry_compiled_before_the_watch_is_explained_too():
    """People start watching when it is already slow."""
    compiled = torch.compile(add, backend="eager")
    compiled(torch.ones(3))
    with dynx.watch() as w:
        compiled(torch.ones(4))
    (reason,) = w.recompiles[0].reasons
    assert (reason.kind, reason.expected, reason.got) == ("size", "3", "4")


def test_ambient_state_from_before_the_watch_is_said_to_be_unknown():
    compiled = torch.compile(add, backend="eager")
    compiled(torch.ones(3))
    with dynx.watch() as w, torch.no_grad():
        compiled(torch.ones(3))
    (reason,) = w.recompiles[0].reasons
    assert (reason.expected, reason.got) == (None, "grad_mode False")


def test_error_on_recompile_is_explained():
    compiled = torch.compile(add, backend="eager")
    with dynx.watch() as w, torch._dynamo.config.patch(error_on_recompile=True):
        compiled(torch.ones(3))
        with pytest.raises(torch._dynamo.exc.RecompileError):
            compiled(torch.ones(4))
    (recompile,) = w.recompiles
    assert (recompile.outcome, recompile.reasons[0].kind) == ("failed", "size")


def test_threads_are_seen():
    with dynx.watch() as w:
        thread = threading.Thread(target=lambda: torch.compile(add, backend="eager")(torch.ones(3)))
        thread.start()
        thread.join()
    assert len(w.compiles) == 1


def test_nothing_of_torch_is_kept_alive():
    """Records outlive the program's tensors, frames and graphs. torch itself keeps some: dynx must add none."""

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
        return sum(type(each).__name__ in names for each in gc.get_objects())

    def growth():
        before = alive_after(0)
        return alive_after(5) - before

    growth()  # torch warms up
    plain = [growth()]
    with dynx.watch() as w:
        watched = growth()
    plain.append(growth())
    assert w.recompiles
    assert watched - max(plain) < 5, "one object a run is a leak; torch's own count varies by one or two"


def test_hooks_are_in_place_only_while_somebody_listens():
    assert not installed()
    with dynx.watch():
        inside = installed()
        with dynx.watch():
            assert installed() == inside
        assert installed() == inside
    assert inside
    assert not installed()


def test_a_listener_that_fails_does_not_disturb_the_others(count_compiles):
    seen = []

    def fails(record):
        raise RuntimeError("full")

    first, second = bus.listen(fails), bus.listen(seen.append)
    try:
        assert torch.compile(add, backend=count_compiles)(torch.ones(3)).sum() == 6
    finally:
        first.remove()
        second.remove()
    assert count_compiles.count == 1
    assert any(isinstance(record, Trouble) and "full" in record.why for record in seen)
