"""The examples say what the README says, and following the advice works."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest
from programs_runner import run, said
from rich.console import Console

from dynx.report import terminal

ROOT = Path(__file__).parents[1]


def example(name, monkeypatch):
    path = ROOT / "examples" / name
    monkeypatch.setattr(sys, "argv", [str(path)])
    return run(path.read_text(), str(path))


def line_of(name, text):
    return next(number for number, line in enumerate((ROOT / "examples" / name).read_text().splitlines(), 1) if text in line)


def test_mistakes_names_the_five_and_nothing_else(monkeypatch):
    seen = example("mistakes.py", monkeypatch)
    assert said(seen) == {
        ("DX301", line_of("mistakes.py", "self.step += 1")),
        ("DX201", line_of("mistakes.py", "print(")),
        ("DX102", line_of("mistakes.py", "return table[tokens]")),
        ("DX202", line_of("mistakes.py", ".item() > 0")),
        ("DX104", line_of("mistakes.py", "for each in history")),
    }


def test_following_the_five_pieces_of_advice_leaves_nothing(monkeypatch):
    seen = example("mistakes_followed.py", monkeypatch)
    assert len(seen.compiles) == 5
    assert not seen.recompiles
    assert not seen.graph_breaks
    assert not seen.gave_up
    assert not seen.findings


@pytest.mark.parametrize(
    ("name", "rules"),
    [
        ("gpt2_generate.py", {"DX102"}),
        pytest.param("gpt2_train.py", {"DX102", "DX501"}, marks=pytest.mark.slow),
        ("vit_train.py", {"DX108", "DX114"}),
    ],
)
def test_real_models(monkeypatch, name, rules):
    """transformers, unmodified: what costs time there is real, and none of it is invented."""
    seen = example(name, monkeypatch)
    assert {finding.rule for finding in seen.findings} == rules
    assert not seen.troubles
    assert sum(finding.seconds for finding in seen.findings) < seen.compile_seconds


def test_the_readme_shows_the_real_output(monkeypatch):
    """Only the times may differ."""
    seen = example("mistakes.py", monkeypatch)
    console = Console(width=80, file=io.StringIO(), record=True)
    monkeypatch.chdir(ROOT)
    console.print(terminal(seen))
    shown = set(map(without_times, console.export_text().splitlines()))
    block = re.search(r"```console\n(.*?)```", (ROOT / "README.md").read_text(), re.S)[1].splitlines()
    # which finding cost most, and so which rule the last line names, depends on the machine
    promised = [line for line in block if re.search(r"DX\d|→|^ {9}\w|compiling", line) and "explains" not in line]
    assert len(promised) >= 15
    assert [line for line in promised if without_times(line) not in shown] == []


def without_times(line):
    return re.sub(r"\d+(?:\.\d)? m?s\b", "T", line).strip()
