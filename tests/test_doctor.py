"""`dynx doctor`, on the installed torch and on a torch with missing or changed names."""

from __future__ import annotations

import json

import pytest

import dynx
from dynx._doctor import canaries
from dynx._torch import hooks
from dynx._torch.capabilities import HOOK_POINTS
from dynx.cli import main


def test_doctor_reports_the_installed_torch_as_healthy():
    report = dynx.doctor(canaries=True)
    assert report.healthy, [canary for canary in report.canaries if canary.failure]
    assert len(report.canaries) == len(canaries.CANARIES)
    assert repr(report).startswith("<DoctorReport torch 2.")


def test_doctor_canaries_do_not_evict_compiled_functions(count_compiles):
    """`dynx.doctor` may be called in the middle of a session."""
    import torch

    compiled = torch.compile(lambda x: x + 1, backend=count_compiles)
    compiled(torch.ones(3))
    dynx.doctor(canaries=True)
    compiled(torch.ones(3))
    assert count_compiles.count == 1


def test_doctor_fails_if_torch_lacks_a_hook_point(monkeypatch, capsys):
    owner, name = hooks.owner_of(HOOK_POINTS[1].path)
    monkeypatch.delattr(owner, name)
    assert not dynx.doctor().healthy
    assert main(["doctor"]) == 1
    assert "some of what dynx needs is missing" in capsys.readouterr().out


def test_doctor_fails_on_a_changed_signature_only_with_strict(monkeypatch):
    owner, name = hooks.owner_of(HOOK_POINTS[1].path)
    monkeypatch.setattr(owner, name, lambda other: None)
    assert main(["doctor"]) == 0
    assert main(["doctor", "--strict"]) == 1


def test_doctor_reports_a_failing_canary(monkeypatch, capsys):
    def fails():
        raise RuntimeError("wrong value")

    monkeypatch.setitem(canaries.CANARIES, "values are right", fails)
    assert main(["doctor", "--canaries"]) == 1
    assert "RuntimeError: wrong value" in capsys.readouterr().out


def test_doctor_prints_its_report_as_json(capsys):
    assert main(["doctor", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["healthy"] is True
    assert {capability["state"] for capability in data["capabilities"]} <= {"ok", "missing"}


@pytest.mark.parametrize("strict", [[], ["--strict"]])
def test_doctor_passes_on_a_supported_torch(strict):
    assert main(["doctor", *strict]) == 0
