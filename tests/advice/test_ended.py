"""Functions that torch runs eagerly since a call without tensor operations: what really happens, and what the findings say."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import dynx
from dynx import Run
from dynx.records import Compile, EagerTime, Location, Reason, Recompile

HERE = Location("drop.py", 6, "drop")
NO_OPERATION = "Dynamo decided to skip the frame while tracing: No ops traced for the FX graph."
FIRST = Compile(0, "0/0", HERE, "skipped", 0.1, reason=NO_OPERATION)


def findings_of(*records):
    return [
        finding for finding in Run(tuple(records), {"torch": "2.13.0"}, {"seconds": 9.0}).findings if finding.rule == "DX303"
    ]


def test_torch_uses_no_compiled_code_after_a_call_without_operations():
    ran = []

    def backend(graph, inputs):
        return lambda *args: ran.append("compiled") or graph.forward(*args)

    @torch.compile(backend=backend)
    def drop(x, training):
        return x * 2 if training else x

    with dynx.watch() as watch:
        for training in (True, True, False, True, True):
            drop(torch.ones(3), training)
    assert ran == ["compiled", "compiled"]
    assert [compile.id for compile in watch.ended] == ["0/1"]
    (finding,) = watch.findings
    assert finding.rule == "DX303"
    assert "training is False, and torch runs each later call eagerly" in finding.title


def test_a_copy_keeps_the_compiled_code():
    ran = []

    def backend(graph, inputs):
        return lambda *args: ran.append("compiled") or graph.forward(*args)

    @torch.compile(backend=backend)
    def drop(x, training):
        return x * 2 if training else x.clone()

    with dynx.watch() as watch:
        for training in (True, False, True):
            drop(torch.ones(3), training)
    assert ran == ["compiled"] * 3
    assert watch.ended == ()


@pytest.mark.parametrize(("reason", "says"), [(NO_OPERATION, False), ("torch skipped it and gives no reason", True)])
def test_the_cause_is_not_proven_where_torch_gives_no_reason(reason, says):
    guard = Reason("value", "L['training']", "True", "False", Location("drop.py", 7, "drop"))
    compile = Compile(0, "0/1", HERE, "skipped", 0.1, reason=reason)
    (finding,) = findings_of(compile, Recompile(0, "0/1", HERE, (guard,), 0.1, "skipped"))
    assert ("(not proven)" in finding.title) == says
    assert finding.location.line == 7


@pytest.mark.parametrize(("samples", "found"), [(30, 1), (3, 0)])
def test_a_first_call_without_operations_has_a_finding_if_the_function_runs_afterwards(samples, found):
    findings = findings_of(FIRST, EagerTime(HERE, 0.6, 1.0, samples))
    assert len(findings) == found
    assert all(finding.uncompiled_share == pytest.approx(0.6) for finding in findings)


def test_functions_of_libraries_have_none():
    inside = Location("lib.py", 3, "helper", library="lib")
    compile = Compile(0, "0/1", HERE, "skipped", 0.1, reason=NO_OPERATION, called_from=inside)
    assert findings_of(compile, Recompile(0, "0/1", HERE, (), 0.1, "skipped")) == []


def test_a_first_call_without_operations_says_nothing_of_compiled_code():
    (finding,) = findings_of(FIRST, EagerTime(HERE, 0.6, 1.0, 30))
    assert not any("compiled code" in line for line in finding.evidence)
    inside = Location("lib.py", 3, "helper", library="lib")
    assert findings_of(replace(FIRST, called_from=inside), EagerTime(HERE, 0.6, 1.0, 30)) == []
