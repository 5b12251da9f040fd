"""Every cause of a recompile is reported with kind, source, both values, line and rule, and its advice avoids it."""

from __future__ import annotations

import contextlib
import inspect
from dataclasses import replace

import pytest
import torch
from recompile_causes import CAUSES, DYNAMIC, STEADY

import dynx

AMBIENT = ("global_state", "backend", "config")


def recompiles_of(cause):
    torch._dynamo.reset()
    compiled = torch.compile(cause.function, backend="eager", **cause.options)
    with dynx.watch() as w:
        compiled(*cause.first)
        with cause.change():
            compiled(*cause.second)
    return list(w.recompiles)


def recompiles_after(cause):
    """Run the program of a cause again, changed as its advice says, and return the recompiles."""
    if cause.advised == DYNAMIC:
        return recompiles_of(replace(cause, options={"dynamic": True}))
    if cause.advised == STEADY:
        with cause.change():
            return recompiles_of(replace(cause, first=cause.second, change=contextlib.nullcontext))
    assert callable(cause.advised), "a cause with a rule shows what following its advice leads to"
    return recompiles_of(cause.advised())


def marked_line(function):
    target = function.forward if isinstance(function, torch.nn.Module) else function
    lines, first = inspect.getsourcelines(target)
    return target.__code__.co_filename, first + next(number for number, line in enumerate(lines) if "# HERE" in line)


@pytest.mark.parametrize("name", CAUSES)
def test_recompile_reason_names_kind_source_values_and_line_of_the_cause(name):
    """A wrong line or value sends the user to the wrong code."""
    cause = CAUSES[name]()
    (recompile,) = recompiles_of(cause)
    reason = recompile.reasons[0]
    assert (reason.kind, reason.source, reason.expected, reason.got) == (cause.kind, cause.source, cause.expected, cause.got)
    assert reason.rule == cause.rule
    if cause.kind in AMBIENT:
        assert (reason.location.file, reason.location.function) == (__file__, "recompiles_of")
    else:
        assert (reason.location.file, reason.location.line) == marked_line(cause.guarded_in or cause.function)


@pytest.mark.parametrize("name", [name for name, create in CAUSES.items() if create().rule is not None])
def test_following_the_advice_avoids_the_recompile(name):
    """Wrong advice costs the user more than no advice."""
    assert recompiles_after(CAUSES[name]()) == []


def test_recompile_reason_names_both_backends():
    def first_backend(gm, inputs):
        return gm.forward

    def second_backend(gm, inputs):
        return gm.forward

    with dynx.watch() as w:
        torch.compile(CAUSES["size_of_a_tensor"]().function, backend=first_backend)(torch.ones(3))
        torch.compile(CAUSES["size_of_a_tensor"]().function, backend=second_backend)(torch.ones(3))
    (reason,) = w.recompiles[0].reasons
    assert (reason.kind, reason.expected, reason.got, reason.rule) == ("backend", "first_backend", "second_backend", "DX112")
    assert reason.location.file == __file__


def test_recompile_reason_names_the_changed_configuration():
    compiled = dynx.compile(CAUSES["size_of_a_tensor"]().function, backend="eager")
    with dynx.watch() as w:
        compiled(torch.ones(3))
        with torch._dynamo.config.patch(capture_scalar_outputs=True):
            compiled(torch.ones(3))
    (reason,) = w.recompiles[0].reasons
    assert (reason.kind, reason.expected, reason.got) == ("config", "False", "True")
    assert reason.source == "torch._dynamo.config.capture_scalar_outputs"
    assert reason.location.file == __file__


def reasons_of_second(first, second):
    """Return the reasons of the recompile when a function is compiled in a second way."""
    x = torch.ones(3)
    with dynx.watch() as w:
        for compiled in (first, second):
            compiled(x)
    (recompile,) = w.recompiles
    return [(reason.kind, reason.source, reason.expected, reason.got, reason.rule) for reason in recompile.reasons]


def test_another_backend_is_the_only_reason_if_only_one_of_them_uses_inductor():
    """There were 621: each setting of inductor, which the key of a backend without inductor does not have."""
    ways = [dynx.compile(CAUSES["size_of_a_tensor"]().function, backend=backend) for backend in ("eager", "aot_eager")]
    assert reasons_of_second(*ways) == [("backend", "backend", "eager", "aot_eager", "DX112")]


@pytest.mark.parametrize("compile", [torch.compile, dynx.compile])
def test_one_compile_for_each_of_two_named_backends_is_expected(compile):
    """The advice to create the backend once is for backends of one name: which of two names is meant, only the user knows."""
    function = CAUSES["size_of_a_tensor"]().function

    def findings_of(*backends):
        torch._dynamo.reset()
        with dynx.watch() as w:
            for backend in backends:
                compile(function, backend=backend)(torch.ones(3))
        return [(finding.rule, finding.advice.partition(";")[0], len(finding.fixes)) for finding in w.findings]

    assert findings_of("eager", "aot_eager") == [("DX112", "one compile per backend is expected", 0)]
    made = [lambda gm, inputs, number=number: gm.forward for number in range(3)]
    assert findings_of(*made) == [("DX112", "create the backend once and pass the same object", 1)]


def test_another_key_is_a_reason_that_blames_no_backend():
    """Advice to create the backend once would be false: the keys differ on purpose."""
    ways = [dynx.compile(CAUSES["size_of_a_tensor"]().function, backend="eager", key=key) for key in ("a", "b")]
    assert reasons_of_second(*ways) == [("config", "key", "'a'", "'b'", None)]
