"""Score the findings of `dynx run` on the corpus against the labels.

python benchmarks/advice/score.py [--written before|after|third|…|ninth] [--json FILE] [PROGRAM.py …]

Prints every cost whose finding is not right, findings that no label asks for, and a table by family. A cost is

- right: a finding is at a line of the label, contains its names (the report shows the function beside the line), and its advice
  matches a fix, which `truth.py` has applied;
- with its break: a finding of a graph break counts these recompiles as its own, and its advice matches a fix of that break;
- other advice: such a finding, whose advice matches no fix of the label;
- other place: a finding contains the names, but is at another line;
- no advice: no finding, but a recompile or graph break is reported at the line, with torch's explanation;
- missed: none of these.

A cost that the label calls unavoidable is right if nothing is advised, or the advice says that the cost is expected.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from label import WRITTEN, Cost, Label, line_of, read_label

from dynx import Run
from dynx.records import Finding

PROGRAMS = Path(__file__).parent / "programs"
VERDICTS = ("right", "with its break", "other advice", "other place", "no advice", "missed")
OF_BREAK = re.compile(r"recompiles? of \d+ functions? that it splits off")
EXPECTED = re.compile(r"(is|are) expected|cannot be avoided|nothing to change|leave it", re.I)


@dataclass(frozen=True)
class Scored:
    """The verdict on one cost of a program, or on a finding that no cost of its label explains (`cost` is None)."""

    program: str
    family: str
    verdict: str
    cost: Cost | None
    findings: tuple[Finding, ...]


def watched(program: Path, timeout: float = 600) -> tuple[Run, str]:
    """Run a program under `dynx run`; return the records and the screen."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run.dynx"
        command = [sys.executable, "-m", "dynx", "run", "--out", str(out), str(program)]
        env = os.environ | {"PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
        done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=timeout, check=False)
        if not out.exists():
            sys.exit(f"{program.name}: dynx run wrote no file\n{done.stderr}")
        return Run.load(out), done.stdout + done.stderr


def score(program: Path) -> list[Scored]:
    """Compare the findings of a program with its label."""
    label = read_label(program)
    run, screen = watched(program)
    source = program.read_text()
    taken: set[int] = set()
    scored = []
    for cost in label.costs:
        lines = {line_of(line, source) for line in cost.lines}
        found = [finding for finding in run.findings if _is_of_kind(finding, cost) and _names(finding, cost)]
        at_line = [finding for finding in found if _lines(finding, program) & lines]
        advised = [finding for finding in at_line if _is_right(finding, cost)]
        if advised or (cost.unavoidable and not at_line):
            verdict = "right"
        elif at_line:
            verdict = "other advice"
        elif found and cost.names:
            verdict = "other place"
        elif cost.kind == "recompile" and _with_break(run.findings, label, program, source):
            verdict = "with its break"
        else:
            reported = any(re.search(rf"{re.escape(program.name)}:{line}\b", screen) for line in lines)
            verdict = "no advice" if reported else "missed"
        findings = advised or at_line or (found if cost.names else [])
        taken |= {id(finding) for finding in (advised or at_line)}
        scored.append(Scored(program.stem, label.family, verdict, cost, tuple(findings)))
    lines = {line_of(line, source) for cost in label.costs for line in cost.lines}
    scored += [
        Scored(program.stem, label.family, "unasked", None, (finding,))
        for finding in run.findings
        if id(finding) not in taken and not _repeats(finding, label, program, lines)
    ]
    return scored


def _with_break(findings: Iterable[Finding], label: Label, program: Path, source: str) -> bool:
    """Return whether a finding of a graph break, with right advice, counts recompiles of functions that it splits off."""
    breaks = [(cost, {line_of(line, source) for line in cost.lines}) for cost in label.costs if cost.kind == "graph break"]
    of_break = [finding for finding in findings if OF_BREAK.search(finding.title)]
    return any(_lines(finding, program) & lines and _is_right(finding, cost) for finding in of_break for cost, lines in breaks)


def _is_of_kind(finding: Finding, cost: Cost) -> bool:
    families = {"recompile": ("DX1", "DX3"), "gave up": ("DX3",), "graph break": ("DX2", "DX5"), "failed": ("DX",)}
    return finding.rule.startswith(families[cost.kind])


def _names(finding: Finding, cost: Cost) -> bool:
    text = "\n".join((finding.title, *finding.evidence, finding.advice, finding.location.own.function))
    return all(name in text for name in cost.names)


def _lines(finding: Finding, program: Path) -> set[int]:
    """Return the lines of the program that a finding shows: its own, and the one that called the function."""
    places = (finding.location.own, finding.called_from)
    return {place.line for place in places if place is not None and Path(place.file).name == program.name}


def _is_right(finding: Finding, cost: Cost) -> bool:
    if cost.unavoidable:
        return bool(EXPECTED.search(finding.advice))
    return any(re.search(fix.advice, finding.advice, re.I) for fix in cost.fixes)


def _repeats(finding: Finding, label: Label, program: Path, lines: set[int]) -> bool:
    """Return whether a finding is a further one at the lines of a labelled cost with right advice."""
    return bool(_lines(finding, program) & lines) and any(_is_right(finding, cost) for cost in label.costs)


def show(scored: list[Scored]) -> None:
    """Print what is not right, and the table by family."""
    for each in scored:
        if each.verdict == "right":
            continue
        print(f"{each.verdict:14} {each.program}: {each.cost.kind + ' · ' + each.cost.cause if each.cost else ''}")
        for finding in each.findings:
            print(f"    {finding.rule} {finding.location.own.line}: {finding.title} -> {finding.advice}")
        if each.cost is not None and each.cost.fixes:
            print(f"    wanted at {each.cost.lines}, {each.cost.names}: {' | '.join(fix.advice for fix in each.cost.fixes)}")
    tables = collections.defaultdict(collections.Counter)
    for each in scored:
        tables[each.family][each.verdict] += 1
        tables["all"][each.verdict] += 1
    columns = (*VERDICTS, "unasked")
    print(f"\n{'family':28}" + "".join(f"{column:>16}" for column in columns))
    for family in [*sorted(tables.keys() - {"all"}), "all"]:
        print(f"{family:28}" + "".join(f"{tables[family][column]:>16}" for column in columns))


def main() -> int:
    """Score the programs; return 1 if a cost is not right."""
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", nargs="*", type=Path)
    parser.add_argument("--written", choices=WRITTEN)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    programs = options.programs or sorted(PROGRAMS.glob("*.py"))
    programs = [path for path in programs if options.written in (None, read_label(path).written)]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        scored = [each for found in pool.map(score, programs) for each in found]
    show(scored)
    if options.json:
        rows = [(each.program, each.family, each.verdict, each.cost.cause if each.cost else "") for each in scored]
        options.json.write_text(json.dumps(rows, indent=1))
    return any(each.verdict != "right" for each in scored)


if __name__ == "__main__":
    sys.exit(main())
