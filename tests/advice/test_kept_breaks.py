"""Graph breaks that are there on purpose, and compilations that dynx made itself: what is said of them is so."""

from __future__ import annotations

import contextlib

import pytest
import rich
import torch

import dynx
from dynx import cudagraphs, saved
from dynx.comptime import debug
from dynx.report import terminal


def optimizer_and_scheduler(create):
    model = torch.nn.Linear(2, 2)
    for param in model.parameters():
        param.grad = torch.ones_like(param)
    optimizer = torch.optim.Adam(model.parameters(), lr=torch.tensor(0.1))
    return optimizer, create(optimizer)


def one_finding(watched, rule):
    (finding,) = [finding for finding in watched.findings if finding.rule == rule]
    return finding


def test_dx205_names_a_scheduler_that_is_stepped_in_compiled_code():
    """torch's headline stood where the name belongs: "Attempted to inline function marked as skipped is disabled"."""
    _, scheduler = optimizer_and_scheduler(lambda opt: torch.optim.lr_scheduler.ReduceLROnPlateau(opt, patience=0))

    @torch.compile(backend="eager")
    def step(metric):
        y = metric * 2
        scheduler.step(metric)
        return y

    with dynx.watch() as w:
        step(torch.tensor(1.0))
    finding = one_finding(w, "DX205")
    assert finding.title == "scheduler.step() is on torch's list of functions that are not traced: scheduler.step(metric)"
    assert finding.advice == "call it outside the compiled function"


def test_dx205_on_a_compiled_optimizer_step_with_a_scheduler_gives_no_advice_that_cannot_be_followed():
    """The call is outside of compiled code already."""
    optimizer, scheduler = optimizer_and_scheduler(lambda opt: torch.optim.lr_scheduler.StepLR(opt, 1))
    step = torch.compile(optimizer.step, backend="eager")
    with dynx.watch() as w:
        for _ in range(2):
            step()
            scheduler.step()
    finding = one_finding(w, "DX205")
    assert finding.title.startswith("a scheduler has wrapped the optimizer's step, and torch does not trace the wrapper: ")
    assert finding.advice.startswith("leave it: only the wrapper runs eagerly; Dynamo compiles the step")
    assert [compiled for compiled in w.compiles if compiled.nodes], "the step that it calls is compiled"


def test_dx205_of_a_function_that_the_user_disabled_says_so_with_the_reason():
    @torch.compiler.disable(reason="metrics stay eager")
    def norm(x):
        return x.norm()

    @torch.compile(backend="eager")
    def normalise(x):
        y = x * 2
        return y / norm(y)

    with dynx.watch() as w:
        normalise(torch.ones(3))
    finding = one_finding(w, "DX205")
    assert finding.title == "norm() is under torch.compiler.disable (metrics stay eager): return y / norm(y)"
    assert "custom_op" in finding.advice


def test_dx212_under_compiled_autograd_does_not_switch_it_off():
    """Called outside, as DX212 advises otherwise, `backward()` would not be compiled."""
    weight = torch.ones(3, requires_grad=True)

    @torch.compile(backend="eager")
    def step(x):
        (x * weight).sum().backward()

    with torch._dynamo.config.patch(compiled_autograd=True), dynx.watch() as w:
        step(torch.ones(3))
    assert one_finding(w, "DX212").advice.startswith("leave it: torch._dynamo.config.compiled_autograd compiles only")
    torch._dynamo.reset()
    with dynx.watch() as w:
        step(torch.ones(3))
    assert "call backward() outside" in one_finding(w, "DX212").advice


@pytest.mark.parametrize("traces", [False, True])
def test_dx212_advises_no_setting_that_torch_refuses_under_compiled_autograd(traces):
    weight = torch.ones(3, requires_grad=True)

    @torch.compile(backend="eager")
    def step(x):
        (g,) = torch.autograd.grad((x * weight).sum(), weight)
        return x * g

    name = "trace_autograd_ops"
    traced = torch._dynamo.config.patch({name: traces}) if hasattr(torch._dynamo.config, name) else contextlib.nullcontext()
    with traced, dynx.watch() as w, dynx.autograd.capture():
        step(torch.ones(3))
    assert one_finding(w, "DX212").advice == "compile only the forward, and compute gradients outside"


def doubled(x):
    return (x * 2).sum()


DOORS = {
    "cudagraphs.explain": lambda: cudagraphs.explain(doubled, torch.ones(3), config=cudagraphs.Config(runtime="emulator")),
    "check": lambda: dynx.check(doubled, torch.ones(3)),
    "debug": lambda: debug(doubled, script="c; c; q")(torch.ones(3)),
    "saved.report": lambda: saved.report(doubled, torch.ones(3, requires_grad=True), backend="aot_eager"),
}


@pytest.mark.slow
def test_compilations_of_dynx_compile_and_of_dynx_itself_are_apart():
    run = dynx.compile(doubled, backend="eager")
    with dynx.watch() as w:
        run(torch.ones(3))
        dynx.check(doubled, torch.ones(3))
        debug(doubled, script="c; c; q")(torch.ones(3))
        dynx.compile(doubled, backend="eager")(torch.ones(3))
    assert w.recompiles == ()
    assert not w.troubles
    assert [compiled.of_dynx for compiled in w.compiles].count(False) == 1


@pytest.mark.slow
@pytest.mark.parametrize("door_first", [False, True], ids=["user first", "door first"])
@pytest.mark.parametrize("door", DOORS)
def test_compilations_that_dynx_makes_itself_recompile_nothing(door, door_first, capsys):
    """DX112 blamed the user for "a new backend object on every compile", which was that of dynx."""
    run = torch.compile(doubled, backend="aot_eager_decomp_partition")
    calls = [lambda: run(torch.ones(3)), DOORS[door]]
    with dynx.watch() as w:
        for call in reversed(calls) if door_first else calls:
            call()
        run(torch.ones(3))
    assert w.recompiles == ()
    assert not w.troubles
    assert {compiled.of_dynx for compiled in w.compiles} == {False, True}
    assert [compiled.backend for compiled in w.compiles if not compiled.of_dynx] == ["aot_eager_decomp_partition"]
    rich.print(terminal(w.run))
    assert "by dynx itself" in capsys.readouterr().out
    assert [finding.rule for finding in w.findings if finding.rule in ("DX112", "DX301")] == []
