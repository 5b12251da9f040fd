"""The examples trigger the rules that they are about, and following the advice removes every finding."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from programs_runner import findings_of, run

EXAMPLES = Path(__file__).parents[1] / "examples"


def run_example(name, monkeypatch):
    path = EXAMPLES / name
    monkeypatch.setattr(sys, "argv", [str(path)])
    return run(path.read_text(), str(path))


def line_with(name, text):
    (line,) = [number for number, line in enumerate((EXAMPLES / name).read_text().splitlines(), 1) if text in line]
    return line


def test_mistakes_example_has_exactly_five_findings(monkeypatch):
    """A newcomer runs this program first, and judges dynx by a missing finding or one too many."""
    watched = run_example("mistakes.py", monkeypatch)
    assert findings_of(watched) == {
        ("DX301", line_with("mistakes.py", "self.step += 1")),
        ("DX201", line_with("mistakes.py", "print(")),
        ("DX102", line_with("mistakes.py", "return table[tokens]")),
        ("DX202", line_with("mistakes.py", ".item() > 0")),
        ("DX104", line_with("mistakes.py", "for tensor in history")),
    }


def test_mistakes_followed_example_has_no_findings(monkeypatch):
    """Advice that leaves a recompile or a graph break behind is worse than none."""
    watched = run_example("mistakes_followed.py", monkeypatch)
    assert len(watched.compiles) == 5
    assert not watched.recompiles
    assert not watched.graph_breaks
    assert not watched.gave_up
    assert not watched.findings


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "rules"),
    [
        ("gpt2_generate.py", {"DX102"}),
        ("gpt2_train.py", {"DX102", "DX501"}),
        ("vit_train.py", {"DX104", "DX107", "DX108", "DX114"}),
    ],
)
def test_unmodified_transformers_models_have_the_expected_findings(monkeypatch, name, rules):
    """Code of a library that knows nothing of dynx has findings where it costs time, and no others."""
    watched = run_example(name, monkeypatch)
    assert {finding.rule for finding in watched.findings} == rules
    assert not watched.troubles
    assert sum(finding.seconds for finding in watched.findings) < watched.compile_seconds
