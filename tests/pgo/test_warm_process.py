"""What `dynx.watch` says in a process that begins with a profile: which sizes are dynamic because of it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

import dynx
from dynx import pgo

PROGRAM = """
import torch, dynx

def scale(x):
    return x * 2

with dynx.watch() as w:
    compiled = torch.compile(scale, backend="eager")
    for length in (4, 6):
        compiled(torch.ones(length))
print(len(w.compiles), [str(change) for change in w.dynamic])
"""


def scale(x, factor):
    return x * factor


def total(x):
    result = x[0]
    for row in range(x.size(0)):
        result = result + x[row]
    return result


def run(function, *calls):
    compiled = torch.compile(function, backend="eager")
    for args in calls:
        compiled(*args)


CALLS = (torch.ones(4), 2), (torch.ones(6), 2), (torch.ones(9), 3)


@pytest.fixture
def profile(tmp_path):
    with pgo.record(run="monday") as recorder:
        run(scale, *CALLS)
    recorder.profile().save(tmp_path / "profile.json")
    torch._dynamo.reset()
    return pgo.Profile.load(tmp_path / "profile.json")


class TestDynamic:
    def test_a_process_without_a_profile(self):
        with dynx.watch() as w:
            run(scale, *CALLS)
        assert [str(change) for change in w.dynamic] == ["L['x'] size 0: 4, then 6", "L['factor'] scalar: 2, then 3"]

    def test_a_process_with_a_profile(self, profile, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        with profile.apply(), dynx.watch() as w:
            run(scale, *CALLS)
        assert len(w.compiles) == 1
        assert [str(change) for change in w.dynamic] == [
            "L['x'] size 0: dynamic from profile.json, 4 then 6 in run monday",
            "L['factor'] scalar: dynamic from profile.json, 2 then 3 in run monday",
        ]
        assert w.dynamic[0].location.line == scale.__code__.co_firstlineno + 1
        assert not w.findings

    def test_each_size_once_after_a_reset_again(self, profile):
        with profile.apply(), dynx.watch() as w:
            run(scale, *CALLS)
            run(scale, (torch.ones(4).double(), 2))
            assert len(w.dynamic) == 2
            torch._dynamo.reset()
            run(scale, *CALLS)
        assert [(change.source, change.generation) for change in w.dynamic] == [
            ("L['x']", w.dynamic[0].generation),
            ("L['factor']", w.dynamic[0].generation),
            ("L['x']", w.dynamic[0].generation + 1),
            ("L['factor']", w.dynamic[0].generation + 1),
        ]

    def test_a_profile_without_values(self):
        run(scale, *CALLS)
        captured = pgo.Profile.capture()
        torch._dynamo.reset()
        with captured.apply(), dynx.watch() as w:
            run(scale, *CALLS)
        assert str(w.dynamic[0]) == "L['x'] size 0: dynamic from a profile"

    def test_a_size_that_becomes_dynamic_beside_the_profile(self, profile):
        with profile.apply(), dynx.watch() as w:
            run(total, (torch.ones(4, 3),), (torch.ones(4, 5),))
        assert [str(change) for change in w.dynamic] == ["L['x'] size 1: 3, then 5"]

    def test_the_profile_that_torch_loads_itself(self, tmp_path):
        (tmp_path / "program.py").write_text(PROGRAM)
        surroundings = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "caches"), "TORCH_COMPILE_JOB_ID": "job"}

        def process():
            command = [sys.executable, "program.py"]
            done = subprocess.run(
                command, env=os.environ | surroundings, cwd=tmp_path, text=True, capture_output=True, check=True
            )
            return done.stdout.strip()

        assert process() == """2 ["L['x'] size 0: 4, then 6"]"""
        assert process() == """1 ["L['x'] size 0: dynamic from torch's profile"]"""

    def test_the_terminal_shows_it(self, profile, tmp_path, monkeypatch, capsys):
        from rich.console import Console

        from dynx.report import terminal

        monkeypatch.chdir(tmp_path)
        with profile.apply(), dynx.watch() as w:
            run(scale, *CALLS)
        Console(width=120).print(terminal(w.run, full=True))
        assert "L['x'] size 0: dynamic from profile.json, 4 then 6 in run monday" in capsys.readouterr().out


class TestSpecialized:
    def test_a_size_of_the_profile_that_a_line_needs(self):
        with pgo.record(run="monday") as recorder:
            run(total, (torch.ones(4, 3),), (torch.ones(5, 3),))
        torch._dynamo.reset()
        with recorder.profile(prune=False).apply(), dynx.watch() as w:
            run(total, (torch.ones(4, 3),), (torch.ones(5, 3),))
        assert not w.dynamic
        assert {(fixed.source, fixed.profile) for fixed in w.specialized} == {("L['x'].size()[0]", "a profile")}
        assert [finding.rule for finding in w.findings if finding.rule == "DX405"] == ["DX405"]

    def test_a_size_that_the_user_marked(self):
        x = torch.ones(4, 3)
        torch._dynamo.maybe_mark_dynamic(x, 0)
        with dynx.watch() as w:
            run(total, (x,))
        assert [fixed.profile for fixed in w.specialized] == [None]
        assert not w.findings
