"""A rule is added by one file and one page, as CONTRIBUTING says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RULE = '''
"""DX299: a call of a function named dummy."""

from dynx.advice.rule import BreakRule, one_of
from dynx.records.fix import Fix

RULE = BreakRule(
    id="DX299",
    title="dummy() is called",
    priority=PRIORITY,  # whatever else applies to the call
    applies=lambda graph_break: graph_break.callee == "dummy",
    title_of=lambda graph_break: f"dummy() at line {graph_break.location.line}",
    advice=lambda graph_break: one_of("call another function"),
    fixes=lambda graph_break: [Fix("statement", "torch._dynamo.config.verbose = True")],
)
'''
ASKED = """
import json
import dynx
from dynx.advice import page
from dynx.cli import main
from dynx.records import GraphBreak, Location

line = Location("train.py", 7, "f")
kind = "Attempted to call function marked as skipped"
graph_break = GraphBreak(line, (line,), kind, kind=kind, callee="dummy", code="dummy(x)", count=1)
run = dynx.Run((graph_break,))
(finding,) = run.findings
print(json.dumps([finding.rule, finding.title, finding.advice, [fix.code for fix in finding.fixes], page(finding.rule)]))
print(json.dumps([run.graph_breaks[0].rule]))
main(["rule"])
"""


@pytest.mark.parametrize(("priority", "rule"), [(9, "DX299"), (-9, "DX205")])
def test_a_rule_is_one_file_and_one_page(tmp_path, priority, rule):
    """Nothing else names it; its priority says when it goes before the rules that apply too."""
    shutil.copytree(ROOT / "dynx", tmp_path / "dynx", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "docs" / "rules", tmp_path / "docs" / "rules")
    (tmp_path / "dynx/advice/rules/breaks/dx299_dummy.py").write_text(RULE.replace("PRIORITY", str(priority)))
    (tmp_path / "docs/rules/DX299.md").write_text("# DX299: dummy() is called\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    output = subprocess.run(
        [sys.executable, "-c", ASKED], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    found, of_record = map(json.loads, output.splitlines()[:2])
    assert of_record == [rule]
    if rule == "DX299":
        statement = "torch._dynamo.config.verbose = True"
        expected = ["DX299", "dummy() at line 7", "call another function", [statement], "# DX299: dummy() is called\n"]
        assert found == expected
    else:
        assert found[0] == rule
    assert "DX299  dummy() is called" in output
