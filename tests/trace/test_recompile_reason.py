"""The failed guard that a recompile reports first if there are several cache entries, and the advice for it."""

from __future__ import annotations

import enum

import torch

import dynx


class Mode(enum.Enum):
    EXPLORE = 1
    EXPLOIT = 2


def act(x, mode, name):
    if mode is Mode.EXPLORE:
        x = x + 1
    return x * len(name)


def test_recompile_reason_names_first_the_value_that_no_cache_entry_matches():
    """If one value alternates, most cache entries fail on it, although another entry was compiled for it."""
    compiled = torch.compile(act, backend="eager")
    x = torch.ones(2)
    with dynx.watch() as w:
        compiled(x, Mode.EXPLORE, "a")
        compiled(x, Mode.EXPLOIT, "a")
        compiled(x, Mode.EXPLORE, "bb")
    first = [recompile.reasons[0] for recompile in w.recompiles]
    assert [(reason.source, reason.got) for reason in first] == [("mode", "Mode.EXPLOIT"), ("name", "'bb'")]


def test_recompile_reason_of_a_branch_on_a_symint_names_the_argument():
    def f(x, n):
        return x + n if n < 10 else x - n

    compiled = torch.compile(f, backend="eager")
    with dynx.watch() as w:
        for n in (3, 4, 20):
            compiled(torch.ones(2), n)
    assert w.recompiles[-1].reasons[0].source == "n"
    assert {finding.rule for finding in w.findings} == {"DX114"}


def test_mark_dynamic_advice_names_all_sizes_that_change_together():
    """Marking only one of them raises ConstraintViolationError."""

    def loss(x, y):
        return (x - y).sum()

    compiled = torch.compile(loss, backend="eager")
    with dynx.watch() as w:
        for size in (4, 6):
            compiled(torch.ones(size, 2), torch.ones(size, 2))
    (finding,) = w.findings
    assert finding.advice == "mark_dynamic(x, 0) with mark_dynamic(y, 0), or pad to one size"


def test_size_one_gets_no_mark_dynamic_advice():
    compiled = torch.compile(lambda x: x + 1, backend="eager")
    with dynx.watch() as w:
        for size in (1, 2):
            compiled(torch.ones(size))
    assert w.findings[0].advice == "size 1 always compiles on its own: warm up with 2 or more"


def test_int_attribute_that_torch_specializes_is_not_reported_as_dynamic():
    """torch logs a changed int on a module as dynamic and then specializes it."""

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.n = 1
            self.nums = torch.ones(3)

        def forward(self, x):
            return x * self.n + self.nums.sum()

    net = Net()
    compiled = torch.compile(net, backend="eager")
    with dynx.watch() as w:
        compiled(torch.ones(2))
        net.n, net.nums = 2, torch.ones(4)
        compiled(torch.ones(2))
    assert [(change.source, change.dim) for change in w.dynamic] == [("L['self'].nums", "size 0")]


def test_size_that_became_dynamic_in_a_restarted_attempt_is_reported():
    """torch logs the change to a dynamic size in the first attempt only."""

    def f(x):
        y = x + 1
        print(end="")
        return y * 2

    compiled = torch.compile(f, backend="eager")
    with dynx.watch() as w:
        for size in (3, 4):
            compiled(torch.ones(size))
    assert ("L['x']", "size 0", "3", "4") in [(change.source, change.dim, change.first, change.second) for change in w.dynamic]


def test_graph_break_with_fullgraph_gets_the_advice_of_its_rule():
    def f(x):
        if x.sum() > 0:
            return x + 1
        return x

    with dynx.watch() as w:
        try:
            torch.compile(f, backend="eager", fullgraph=True)(torch.ones(2))
        except torch._dynamo.exc.Unsupported:
            pass
    (finding,) = w.findings
    assert (finding.rule, finding.location.line) == ("DX203", f.__code__.co_firstlineno + 1)
    assert finding.evidence[0].startswith("the compilation failed")


def test_finding_of_a_graph_break_in_a_loop_names_the_function_that_runs_eagerly():
    def callback(x):
        print(end="")
        return x + 1

    def train_step(x):
        for _ in range(2):
            x = callback(x)
        return x

    with dynx.watch() as w:
        torch.compile(train_step, backend="eager")(torch.ones(2))
    finding = next(finding for finding in w.findings if finding.rule == "DX206")
    assert "inside a for: " in finding.title
    assert "train_step continues eagerly" in finding.title
    assert len(w.run.eager) == 1


def test_generators_of_the_standard_library_have_no_finding():
    """torch.save runs generators of the standard library, and so do many programs: only a compiled generator is a mistake."""

    def f(x):
        torch.save(x, "/dev/null")
        return x + 1

    with dynx.watch() as w:
        torch.compile(f, backend="eager")(torch.ones(2))
    assert "DX207" not in {finding.rule for finding in w.findings}


def test_seconds_of_nested_compilations_are_not_counted_twice():
    import time

    inner = torch.compile(lambda x: x * 2, backend="eager")

    def backend(graph_module, inputs):
        time.sleep(0.2)
        inner(torch.ones(2))
        return graph_module.forward

    with dynx.watch() as w:
        start = time.perf_counter()
        torch.compile(lambda x: x + 1, backend=backend)(torch.ones(2))
        wall = time.perf_counter() - start
    assert w.compile_seconds <= wall
    for compile in w.compiles:
        assert abs(sum(compile.phases.values()) - compile.seconds) < 1e-6
