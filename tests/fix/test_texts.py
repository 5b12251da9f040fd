"""Texts are for people: `dynx fix` does the same whatever the advice, the titles and the names of fixes say."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
from programs_runner import run

from dynx import advice
from dynx._rewrites import _OF_LINES, Files, ways
from dynx.advice.rule import Advice, BreakRule, RecompileRule
from dynx.records import Finding, fix

PROGRAM = """
import torch


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x * self.calls


def clip(x):
    if x.sum() > 1:
        return x / x.sum()
    return x * 1


def noisy(x, lr):
    y = x * lr
    print("step")
    return y.sum().item() + 1


def rows(x):
    return x * 2


def main():
    scaled = torch.compile(Scaled(), backend="eager")
    for _ in range(12):
        scaled(torch.ones(3))
    torch.compile(clip, backend="eager")(torch.ones(4))
    compiled = torch.compile(noisy, backend="eager")
    compiled(torch.ones(4), 0.5)
    compiled(torch.ones(4), 0.25)
    compiled = torch.compile(rows, backend="eager", dynamic=False)
    compiled(torch.ones(3))
    compiled(torch.ones(4))


main()
"""


def written(findings: tuple[Finding, ...], path: str) -> list[tuple[str, str, list[str]]]:
    """Return what is tried for each finding: its rule, the kind of each fix, and the texts of the changed file."""
    return [
        (finding.rule, fix.kind, [text for changed in ways(Files({}, path), finding, fix) for text in changed.values()])
        for finding in findings
        for fix in finding.fixes
    ]


def _reworded(advice: Advice) -> Advice:
    return advice._replace(alternatives=tuple(replace(each, text="change it") for each in advice.alternatives))


@pytest.fixture
def reworded(monkeypatch):
    """Return a function that replaces all texts of rules and rewrites, but not code that a fix consists of."""

    def replace_texts():
        monkeypatch.setattr(fix, "TEXTS", dict.fromkeys(fix.TEXTS, "do it differently"))
        for rule in advice.RULES.values():
            texts = {"title": "a problem"}
            if isinstance(rule, RecompileRule):
                texts["advice"] = lambda cause, old=rule.advice: _reworded(old(cause))
            elif isinstance(rule, BreakRule):
                texts |= {
                    "advice": lambda graph_break, old=rule.advice: _reworded(old(graph_break)),
                    "title_of": lambda graph_break: "something happens",
                }
            for name, value in texts.items():
                undo.append((rule, name, getattr(rule, name)))
                object.__setattr__(rule, name, value)  # it is frozen

    undo = []
    yield replace_texts
    for rule, name, value in undo:
        object.__setattr__(rule, name, value)


def test_fixes_do_not_depend_on_words(tmp_path, reworded):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    watched = run(PROGRAM, str(path))
    plain = written(watched.findings, str(path))
    assert {kind for _, kind, _ in plain} >= {"statement", "option", "mark", "rewrite"}
    assert {rule for rule, _, texts in plain if texts} >= {"DX201", "DX202", "DX203", "DX301", "DX102", "DX114"}
    reworded()
    assert all(finding.advice.startswith("change it") for finding in watched.findings)
    assert written(tuple(map(without_words, watched.findings)), str(path)) == plain


def without_words(finding: Finding) -> Finding:
    is_named = ("mark", "rewrite")  # the others are code
    return replace(
        finding, fixes=tuple(replace(each, code="words") if each.kind in is_named else each for each in finding.fixes)
    )


def test_every_rewrite_has_a_function_that_writes_it():
    of_calls = {"tensor argument", "tensor attribute"}
    assert set(_OF_LINES) | of_calls == set(get_args(fix.Rewrite)) == set(fix.TEXTS)
