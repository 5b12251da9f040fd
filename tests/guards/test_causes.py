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
