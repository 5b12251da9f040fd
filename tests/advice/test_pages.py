"""Every rule's page proves itself: its mistake fires, its advice removes the cost, its near miss stays quiet."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from programs_runner import PROGRAMS, expected, run, said

from dynx.advice import RULES, page
from dynx.errors import UnknownRule

PAGES = Path(__file__).parents[2] / "docs" / "rules"
SECTIONS = ("Fires on", "Do this", "Does not fire on")


def program(rule: str, section: str) -> str:
    """Give the code block of a section of a rule's page."""
    text = page(rule).partition(f"## {section}\n")[2].partition("\n## ")[0]
    (code,) = re.findall(r"```python\n(.*?)```", text, re.S)
    return code


@pytest.fixture(autouse=True)
def library(monkeypatch):
    """The page about libraries imports one."""
    monkeypatch.syspath_prepend(PROGRAMS / "site-packages")


def run_block(rule, section, tmp_path):
    path = tmp_path / "program.py"
    path.write_text(program(rule, section))
    seen = run(path.read_text(), str(path))
    assert not seen.troubles
    return path, seen


def test_every_rule_has_a_page_and_every_page_a_rule():
    """`dynx rule` must never print an empty page, and no page may outlive its rule."""
    assert {path.stem for path in PAGES.glob("DX*.md")} == set(RULES)
    for rule in RULES.values():
        assert page(rule.id).startswith(f"# {rule.id}: {rule.title}\n")
        assert [section for section in SECTIONS if f"## {section}\n" in page(rule.id)] == list(SECTIONS)


def test_an_unknown_rule_is_refused():
    with pytest.raises(UnknownRule, match="there is no rule DX999"):
        page("DX999")
    with pytest.raises(UnknownRule):
        page("../../README")


@pytest.mark.parametrize("rule", RULES)
def test_the_mistake_fires(rule, tmp_path):
    path, seen = run_block(rule, "Fires on", tmp_path)
    assert (rule, next(line for found, line in expected(path.read_text()) if found == rule)) in said(seen)
    assert said(seen) == expected(path.read_text())


@pytest.mark.parametrize("rule", RULES)
def test_following_the_advice_removes_the_cost(rule, tmp_path):
    """Advice that does not help is worse than none."""
    _, seen = run_block(rule, "Do this", tmp_path)
    assert seen.compiles, "nothing was compiled, so nothing is proven"
    assert not seen.findings
    assert not seen.recompiles
    assert not seen.graph_breaks
    assert not seen.gave_up


@pytest.mark.parametrize("rule", RULES)
def test_the_near_miss_stays_quiet(rule, tmp_path):
    _, seen = run_block(rule, "Does not fire on", tmp_path)
    assert seen.compiles, "nothing was compiled, so nothing is proven"
    assert not seen.findings
