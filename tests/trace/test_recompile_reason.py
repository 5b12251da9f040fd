"""The failed guard that a recompile reports first if there are several cache entries, and the advice for it."""

from __future__ import annotations

import enum
import gc

import pytest
import torch

import dynx


class Mode(enum.Enum):
    EXPLORE = 1
    EXPLOIT = 2


def act(x, mode, name):
    if mode is Mode.EXPLORE:
        x = x + 1
    return x * len(name)


class Agent:
    def __init__(self):
        self.mode = Mode.EXPLORE
        self.weights = {Mode.EXPLORE: 0.5, Mode.EXPLOIT: 2.0}

    def act(self, x):
        return x * self.weights[self.mode]


def test_a_member_of_an_enum_that_is_the_key_of_a_dict_is_what_changes():
    """torch 2.13 says only that the first key of the dict is the object in `self.mode`."""
    agent = Agent()
    compiled = torch.compile(agent.act, backend="eager")
    with dynx.watch() as w:
        for mode in Mode:
            agent.mode = mode
            compiled(torch.ones(2))
    ((reason,),) = [recompile.reasons for recompile in w.recompiles]
    assert (reason.source, reason.expected, reason.got) == ("self.mode", "Mode.EXPLORE", "Mode.EXPLOIT")
    (finding,) = w.findings
    assert finding.rule == "DX110"


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
    assert finding.advice == "maybe_mark_dynamic(x, 0) with maybe_mark_dynamic(y, 0) before the call; or pad to one size"


def test_size_one_gets_no_mark_dynamic_advice():
    compiled = torch.compile(lambda x: x + 1, backend="eager")
    with dynx.watch() as w:
        for size in (1, 2):
            compiled(torch.ones(size))
    assert (
        w.findings[0].advice
        == "size 1 compiles on its own: one recompile is expected; to avoid it, pad, or compile a separate function for size 1"
    )


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


def findings(fn, *calls, backend="eager"):
    compiled = torch.compile(fn, backend=backend)
    with dynx.watch() as w:
        for args in calls:
            compiled(*args)
    return w.findings


def total_by_rows(x):
    total = 0
    for row in range(x.size(0)):
        total = total + x[row] * row
    return total


TABLE = {size: 1.0 / size for size in range(2, 9)}


def weighted(x):
    return x * TABLE[x.size(0)]


def test_advice_for_a_size_that_a_line_fixes_names_the_line_and_does_not_advise_mark_dynamic():
    """mark_dynamic raises ConstraintViolationError where code needs the exact size."""
    (loop,) = findings(total_by_rows, *((torch.ones(size, 2),) for size in (3, 4, 5)))
    assert loop.title == "x.size(0) 3, then 4, 5; fixed by: for row in range(x.size(0)): total = total + x[row] * row"
    assert loop.advice.startswith("the loop is unrolled for each size: compile the body of one step")
    (lookup,) = findings(weighted, *((torch.ones(size),) for size in (3, 4, 5)))
    assert "fixed by: return x * TABLE[x.size(0)]" in lookup.title
    assert lookup.advice == "look it up outside the compiled function and pass the result in as an argument"


def test_advice_for_a_size_of_a_parameter_argument_removes_its_recompiles():
    def step(p, grad):
        return p - 0.1 * grad

    calls = [(torch.nn.Parameter(torch.ones(size)), torch.ones(size)) for size in (3, 4, 5)]
    (finding,) = findings(step, *calls)
    assert "torch._dynamo.config.force_parameter_static_shapes = False" in finding.advice
    torch._dynamo.reset()
    with torch._dynamo.config.patch(force_parameter_static_shapes=False):
        compiled = torch.compile(step, backend="eager")
        with dynx.watch() as w:
            for p, grad in calls:
                torch._dynamo.mark_dynamic(p, 0)
                torch._dynamo.mark_dynamic(grad, 0)
                compiled(p, grad)
    assert not w.recompiles


def test_requires_grad_of_a_parameter_is_reported_in_both_directions():
    """torch's message has one value, followed by a hint about parameters. (Torch 2.11 guards it for arguments only.)"""
    for first, second in ((True, False), (False, True)):
        torch._dynamo.reset()
        weight = torch.nn.Parameter(torch.ones(2))
        compiled = torch.compile(lambda p: p * 2, backend="eager")
        with dynx.watch() as w:
            for requires_grad in (first, second):
                compiled(weight.requires_grad_(requires_grad))
        reason = w.recompiles[0].reasons[0]
        assert (reason.kind, reason.expected, reason.got) == ("requires_grad", str(first), str(second))


def test_new_keyword_arguments_are_named_instead_of_their_number():
    def forward(**kwargs):
        return sum(kwargs.values())

    compiled = torch.compile(forward, backend="eager")
    with dynx.watch() as w:
        compiled(x=torch.ones(2))
        compiled(x=torch.ones(2), mask=torch.ones(2))
        compiled(x=torch.ones(2))
    (finding,) = w.findings
    assert finding.title == "keys of kwargs no 'mask', then 'mask'"
    assert finding.advice == "pass the same keys in kwargs on every call, with a default value where there is none"


def test_other_keys_of_an_argument_are_data_which_a_list_holds_without_guards():
    def mean(states):
        return sum(states[name] for name in states) / len(states)

    def recompiles(pack):
        torch._dynamo.reset()
        compiled = torch.compile(mean if pack is dict else (lambda states: sum(states) / len(states)), backend="eager")
        with dynx.watch() as watch:
            for names in ("ab", "bc", "cd"):
                states = {name: torch.ones(3) for name in names}
                compiled(states if pack is dict else list(states.values()))
        return watch

    (finding,) = recompiles(dict).findings
    assert finding.advice.startswith("pass the values of states as a list, which has no keys to guard; or pass the same keys")
    assert not recompiles(list).recompiles


class Scaled(torch.nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return x * self.factor


@pytest.mark.parametrize("kept", [True, False])
def test_constants_of_instances_that_share_code_are_not_reported_as_a_counter(kept):
    instances = []
    with dynx.watch() as w:
        for factor in (2, 3, 4):
            module = Scaled(factor)
            module.compile(backend="eager")
            module(torch.ones(2))
            instances.append(module)
            if not kept:
                del instances[:], module
                gc.collect()
    (finding,) = w.findings
    assert finding.title == "3 instances of Scaled share its compiled code: self.factor 2, then 3, 4"
