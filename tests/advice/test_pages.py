"""The programs on the page of each rule: the mistake has a finding, the advice removes it, the near miss has none."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from programs_runner import PROGRAMS, expected, findings_of, run

from dynx.advice import RULES, expected_breaks, page
from dynx.cli import main
from dynx.cli.rule import FAMILIES
from dynx.errors import UnknownRule

PAGES = Path(__file__).parents[2] / "docs" / "rules"
SECTIONS = ("Fires on", "Do this", "Does not fire on")


def program(rule: str, section: str) -> str:
    """Return the code block of a section of a rule's page."""
    text = page(rule).partition(f"## {section}\n")[2].partition("\n## ")[0]
    (code,) = re.findall(r"```python\n(.*?)```", text, re.S)
    return code


@pytest.fixture(autouse=True)
def surroundings(monkeypatch, tmp_path, torch_names):
    """Make the library of DX501 importable, and begin with empty caches on disk, and torch's names of symbols."""
    monkeypatch.syspath_prepend(PROGRAMS / "site-packages")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "caches"))


def run_block(rule, section, tmp_path):
    path = tmp_path / "program.py"
    path.write_text(program(rule, section))
    watched = run(path.read_text(), str(path))
    assert not watched.troubles
    return path, watched


def test_every_rule_has_a_documentation_page_and_every_page_a_rule():
    """`dynx rule` must never print an empty page, and no page may outlive its rule."""
    assert {path.stem for path in PAGES.glob("DX*.md")} == set(RULES)
    for rule in RULES.values():
        assert page(rule.id).startswith(f"# {rule.id}: {rule.title}\n")
        assert [section for section in SECTIONS if f"## {section}\n" in page(rule.id)] == list(SECTIONS)


def test_the_list_of_rules_is_that_of_the_files():
    """A new rule is added to docs/rules/README.md by `make rules`."""
    source = runpy.run_path(str(PAGES.parent / "list_rules.py"))
    assert (PAGES / "README.md").read_text() == source["text"]()
    assert all(f"[{rule.id}]({rule.id}.md): {rule.title}\n" in source["text"]() for rule in RULES.values())


def test_dynx_rule_lists_every_rule_below_its_family(capsys):
    assert main(["rule"]) == 0
    printed = [line.strip() for line in capsys.readouterr().out.splitlines()]
    for rule in RULES.values():
        assert f"{rule.id}  {rule.title}" in printed
        family = printed.index(next(heading for prefix, heading in FAMILIES.items() if rule.id.startswith(prefix)))
        assert "" not in printed[family : printed.index(f"{rule.id}  {rule.title}")]


def test_reading_the_page_of_an_unknown_rule_raises():
    with pytest.raises(UnknownRule, match="no rule has the id DX999"):
        page("DX999")
    with pytest.raises(UnknownRule):
        page("../../README")


@pytest.mark.parametrize("rule", RULES)
def test_program_in_the_fires_on_section_of_a_rule_page_has_the_finding(rule, tmp_path):
    path, watched = run_block(rule, "Fires on", tmp_path)
    program = path.read_text()
    assert f"# {rule}" in program
    no_change = {(found.rule, found.location.own.line) for found in expected_breaks(watched)}  # reported, but no findings
    assert findings_of(watched) | no_change == expected(program)


@pytest.mark.parametrize("rule", RULES)
def test_program_in_the_do_this_section_of_a_rule_page_has_no_finding_or_recompile(rule, tmp_path):
    """Advice that leaves a recompile or a graph break behind is worse than none."""
    _, watched = run_block(rule, "Do this", tmp_path)
    assert watched.compiles, "nothing was compiled, so nothing is tested"
    assert not watched.findings
    assert not watched.recompiles
    assert not watched.graph_breaks
    assert not watched.gave_up


@pytest.mark.parametrize("rule", RULES)
def test_program_in_the_does_not_fire_on_section_of_a_rule_page_has_no_finding(rule, tmp_path):
    _, watched = run_block(rule, "Does not fire on", tmp_path)
    assert watched.compiles, "nothing was compiled, so nothing is tested"
    assert not watched.findings
