"""`dynx doctor` on the installed torch, healthy and not."""

from __future__ import annotations

import json

import pytest

import dynx
from dynx._doctor import canaries
from dynx._torch import hooks
from dynx._torch.capabilities import HOOK_POINTS
from dynx.cli import main


def test_the_installed_torch_is_healthy():
    report = dynx.doctor(canaries=True)
    assert report.healthy, [each for each in report.canaries if each.failure]
    assert len(report.canaries) == len(canaries.CANARIES)
    assert repr(report).startswith("<DoctorReport torch 2.")


def test_canaries_leave_compiled_functions_alone(count_compiles):
    """Somebody may call the doctor in the middle of their work."""
    import torch

    compiled = torch.compile(lambda x: x + 1, backend=count_compiles)
    compiled(torch.ones(3))
    dynx.doctor(canaries=True)
    compiled(torch.ones(3))
    assert count_compiles.count == 1


def test_a_missing_hook_point_makes_it_unwell(monkeypatch, capsys):
    owner, name = hooks.owner_of(HOOK_POINTS[1].path)
    monkeypatch.delattr(owner, name)
    assert not dynx.doctor().healthy
    assert main(["doctor"]) == 1
    assert "some of what dynx needs is missing" in capsys.readouterr().out


def test_a_changed_signature_fails_only_strictly(monkeypatch):
    owner, name = hooks.owner_of(HOOK_POINTS[1].path)
    monkeypatch.setattr(owner, name, lambda other: None)
    assert main(["doctor"]) == 0
    assert main(["doctor", "--strict"]) == 1


def test_a_canary_that_dies_is_named(monkeypatch, capsys):
    def dies():
        raise RuntimeError("gas")

    monkeypatch.setitem(canaries.CANARIES, "gas", dies)
    assert main(["doctor", "--canaries"]) == 1
    assert "RuntimeError: gas" in capsys.readouterr().out


def test_json(capsys):
    assert main(["doctor", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["healthy"] is True
    assert {each["state"] for each in data["capabilities"]} <= {"ok", "missing"}


@pytest.mark.parametrize("strict", [[], ["--strict"]])
def test_supported_torch_passes(strict):
    assert main(["doctor", *strict]) == 0
