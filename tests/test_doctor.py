"""`dynx doctor`, on the installed torch and on a torch with missing or changed names."""

from __future__ import annotations

import json
import re

import pytest

import dynx
from dynx import symbols
from dynx._doctor import canaries
from dynx._torch import hooks
from dynx._torch.capabilities import (
    ATTRIBUTES,
    OPTIONAL_ATTRIBUTES,
    capabilities,
    hook_point,
)
from dynx._torch.cuda_attributes import CUDA_ATTRIBUTES
from dynx.cli import main


def test_doctor_reports_the_installed_torch_as_healthy():
    report = dynx.doctor(canaries=True)
    assert report.healthy, [canary for canary in report.canaries if canary.failure]
    assert len(report.canaries) == len(canaries.CANARIES)
    assert repr(report).startswith("<DoctorReport torch 2.")


def test_doctor_canaries_pass_while_other_parts_of_dynx_are_active():
    with symbols.install(), dynx.watch():
        canaries.hooks_are_removed()


def test_doctor_canaries_do_not_evict_compiled_functions(count_compiles):
    """`dynx.doctor` may be called in the middle of a session."""
    import torch

    compiled = torch.compile(lambda x: x + 1, backend=count_compiles)
    compiled(torch.ones(3))
    dynx.doctor(canaries=True)
    compiled(torch.ones(3))
    assert count_compiles.count == 1


def test_doctor_fails_if_torch_lacks_a_hook_point(monkeypatch, capsys):
    owner, name = hooks.owner_of(hook_point("attempt").path)
    monkeypatch.delattr(owner, name)
    assert not dynx.doctor().healthy
    assert main(["doctor"]) == 1
    assert "lacks trace_frame" in capsys.readouterr().out


def lines_of(capsys):
    return [line.strip() for line in capsys.readouterr().out.splitlines()]


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


def test_doctor_answers_in_three_lines(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["doctor"]) == 0
    verdict, effect, step = lines_of(capsys)
    assert re.fullmatch(r"torch 2\S+ · Python 3\S+ · has everything that dynx needs", verdict)
    assert effect == "nothing is missing or changed" or effect.startswith("unavailable: ")
    assert step == "→ dynx doctor --canaries also checks it with small programs"


def test_doctor_lists_every_name_only_in_full(capsys):
    main(["doctor"])
    assert hook_point("compile").path not in capsys.readouterr().out
    assert main(["doctor", "--full"]) == 0
    full = capsys.readouterr().out
    assert all(capability.path in full for capability in capabilities())
    main(["doctor", "--json"])
    assert len(json.loads(capsys.readouterr().out)["capabilities"]) == len(capabilities())


def test_doctor_says_which_features_do_not_work_and_what_to_do(monkeypatch, capsys):
    """A user wants to know what they lose, not which attribute is gone."""
    attributes = [ATTRIBUTES[name][0] for name in ("optimize", "pin", "unpin")]
    for path in (hook_point("graph_break").path, hook_point("step").path, *attributes):
        monkeypatch.delattr(*hooks.owner_of(path))
    assert main(["doctor"]) == 1
    assert lines_of(capsys)[0].endswith("lacks 6 names that dynx uses")  # `optimize` is hooked too
    assert main(["doctor"]) == 1
    _, effect, step = lines_of(capsys)
    lost = "recording graph breaks; why nothing was compiled; post-mortem, timeline and debugger; dynx.compile; and 1 more"
    assert effect == f"does not work: {lost}"
    assert step == "→ use torch 2.11 to 2.15, or do without; dynx doctor --full lists the names"
    assert main(["doctor", "--full"]) == 1
    states = [line.split()[0] for line in lines_of(capsys)[4:]]
    assert states[:6] == ["missing"] * 6
    assert "missing" not in states[6:]
    main(["doctor", "--json"])
    assert json.loads(capsys.readouterr().out)["broken_features"][-1] == "guards.pin"


@pytest.mark.parametrize("names", [CUDA_ATTRIBUTES, {"set_region": OPTIONAL_ATTRIBUTES["set_region"]}], ids=["CUDA", "regions"])
def test_doctor_is_healthy_without_what_only_some_builds_of_torch_have(monkeypatch, capsys, names):
    _delete(monkeypatch, names)
    assert main(["doctor", "--strict"]) == 0
    feature = "CUDA graphs on a GPU" if "replay" in names else "isolate_recompiles"
    assert feature in lines_of(capsys)[1].partition("unavailable: ")[2]


def test_doctor_answers_in_three_lines_without_what_only_some_builds_have(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    _delete(monkeypatch, CUDA_ATTRIBUTES | {"set_region": OPTIONAL_ATTRIBUTES["set_region"]})
    monkeypatch.delattr(*hooks.owner_of(hook_point("skip").path), raising=False)
    assert main(["doctor"]) == 0
    assert lines_of(capsys)[1] == "unavailable: recording other skips; isolate_recompiles; CUDA graphs on a GPU"


def _delete(monkeypatch, names):
    for path, _ in names.values():
        monkeypatch.delattr(*hooks.owner_of(path), raising=False)


def test_doctor_fails_on_a_changed_signature_only_with_strict(monkeypatch, capsys):
    owner, name = hooks.owner_of(hook_point("attempt").path)
    monkeypatch.setattr(owner, name, lambda other: None)
    assert main(["doctor"]) == 0
    verdict, effect, step = lines_of(capsys)
    assert verdict.endswith("has another signature for trace_frame")
    assert effect == "may not work: recording attempts of a compilation, and why they restarted"
    assert step == "→ dynx doctor --canaries checks with small programs whether it works"
    assert main(["doctor", "--strict"]) == 1


def test_doctor_reports_a_failing_canary(monkeypatch, capsys):
    def fails():
        raise RuntimeError("wrong value")

    monkeypatch.setitem(canaries.CANARIES, "values are right", fails)
    assert main(["doctor", "--canaries"]) == 1
    verdict, effect, step = lines_of(capsys)
    assert verdict.endswith("1 canary failed")
    assert effect == "torch behaves differently: values are right (RuntimeError: wrong value)"
    assert step == "→ use torch 2.11 to 2.15: reports with this torch may be wrong"


def test_doctor_prints_its_report_as_json(capsys):
    assert main(["doctor", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["healthy"] is True
    assert {capability["state"] for capability in data["capabilities"]} <= {"ok", "missing"}


@pytest.mark.parametrize("strict", [[], ["--strict"]])
def test_doctor_passes_on_a_supported_torch(strict):
    assert main(["doctor", *strict]) == 0
