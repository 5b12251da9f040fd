"""Run `dynx fix` on the programs of the corpus: which findings it fixes, and whether the changed programs do the same.

python benchmarks/advice/fixes.py [--jobs N] [--json FILE] [PROGRAM …]

A finding of the rules below is fixed if a fix of it is kept, or if it is gone at the end. Those whose advice says that the cost
is expected are counted apart. The changed program is run again without dynx: torch's own logs have to show no more events, and
its output has to be the same, up to the tolerance of `dynx fix`. A rule whose advice raises in its trial or changes the output
is wrong. Exits with 1 for either.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import truth

from dynx.fix._output import Tolerance, difference
from dynx.records.codec import from_data
from dynx.records.fix_report import FixReport

PROGRAMS = Path(__file__).parent / "programs"
RULES = ("DX101", "DX102", "DX104", "DX112", "DX114", "DX115", "DX201", "DX202", "DX203", "DX301")
EXPECTED = re.compile(r"is expected|are expected|expect one recompile|cannot be avoided|nothing to change", re.I)


@dataclass(frozen=True)
class Scored:
    """What `dynx fix` did with one program: for each finding of the rules, its rule and one of fixed, left or expected."""

    program: str
    findings: tuple[tuple[str, str, str], ...]  # rule, verdict, title
    wrong: str  # what the changed program does otherwise; empty if nothing
    refuted: tuple[str, ...]  # advice of which a trial failed
    report: FixReport | None


def fixed(program: Path, budget: float) -> FixReport | None:
    """Run `dynx fix`; return its report, or None if the program cannot be tried."""
    command = [sys.executable, "-m", "dynx", "fix", "--json", "--budget", str(budget), str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=program.parent)
    if done.returncode == 2:
        print(f"{program.stem}: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        return None
    if not done.stdout:
        sys.exit(f"{program.stem}: dynx fix failed\n{done.stderr[-2000:]}")
    return from_data(FixReport, json.loads(done.stdout))


def patched(program: Path, diff: str, folder: Path) -> Path:
    """Write a copy of a program with a diff applied."""
    copy = folder / program.name
    copy.write_text(program.read_text())
    subprocess.run(["git", "apply"], cwd=folder, input=diff, text=True, check=True)
    return copy


def cost(found: truth.Truth) -> int:
    """Return the cost of a run: a function that is left eager at the recompile limit costs more than recompiles."""
    return len(found.recompiles) + len(found.breaks) + 16 * found.at_limit


def wrong(program: Path, report: FixReport) -> str:
    """Return what the changed program does otherwise than the original, without dynx; empty if nothing."""
    with tempfile.TemporaryDirectory() as folder:
        before, after = truth.run(program), truth.run(patched(program, report.diff, Path(folder)))
    if after.exit_code and not before.exit_code:
        return f"raises {after.error}"
    if cost(after) > cost(before):
        return f"{before.total} events, then {after.total}: {after.recompiles} {after.breaks}"
    output = after.output[: len(before.output)] if before.exit_code else after.output  # it went on
    return difference(before.output, output, Tolerance()) or ""


def score(program: Path, budget: float) -> Scored:
    """Fix a program, and compare the changed one with the original."""
    report = fixed(program, budget)
    if report is None:
        return Scored(program.stem, (), "", (), None)
    left = {(finding.rule, finding.title, finding.location.own.function) for finding in report.remaining}
    kept = {(trial.rule, trial.title) for trial in report.trials if trial.is_kept}
    findings = []
    for finding in report.found:
        if finding.rule not in RULES:
            continue
        if (finding.rule, finding.title) in kept or (finding.rule, finding.title, finding.location.own.function) not in left:
            verdict = "fixed"
        else:
            verdict = "expected" if EXPECTED.search(finding.advice) else "left"
        findings.append((finding.rule, verdict, finding.title))
    return Scored(program.stem, tuple(findings), wrong(program, report) if report.diff else "", tuple(refuted(report)), report)


def refuted(report: FixReport) -> Iterator[str]:
    """Yield the advice of which each trial failed or changed the output: a rule that gives it is wrong about the program."""
    findings = (*report.remaining, *report.found)  # of a finding in both the advice before its trials
    advised = {(finding.rule, finding.title): {each.does for each in finding.alternatives} for finding in findings}
    for trial in report.trials:
        is_advised = trial.fix.kind != "rewrite" and trial.fix.name in advised.get((trial.rule, trial.title), ())
        helps = any(other.is_kept and (other.title, other.fix) == (trial.title, trial.fix) for other in report.trials)
        if is_advised and not helps and trial.outcome in ("fails", "other output"):
            yield f"{trial.rule} {trial.title}: {trial.fix.code}: {trial.outcome}: {trial.reason}"


def main() -> int:
    """Score the programs; return 1 if a changed program does something else, or if advice failed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", nargs="*", type=Path)
    parser.add_argument("--budget", type=float, default=300)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    named = (path.resolve() if path.exists() else PROGRAMS / f"{path.stem}.py" for path in options.programs)
    programs = list(named) or sorted(PROGRAMS.glob("*.py"))
    table: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    found, bad = [], 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for scored in pool.map(lambda path: score(path, options.budget), programs):
            found.append(scored)
            for rule, verdict, title in scored.findings:
                table[rule][verdict] += 1
                if verdict == "left":
                    print(f"left      {scored.program}: {rule} {title}")
            for text in scored.refuted:
                bad += 1
                print(f"ADVICE    {scored.program}: {text}")
            if scored.wrong:
                bad += 1
                print(f"WRONG     {scored.program}: {scored.wrong}")
            sys.stdout.flush()
            if options.json:
                reports = [(each.program, json.loads(each.report.to_json())) for each in found if each.report is not None]
                options.json.write_text(json.dumps(reports, indent=1))
    for rule, counts in sorted(table.items()):
        print(f"{rule}  fixed {counts['fixed']:3}  left {counts['left']:3}  expected {counts['expected']:3}")
    done = sum(counts["fixed"] for counts in table.values())
    left = sum(counts["left"] for counts in table.values())
    share = done / max(1, done + left)
    runs = sum(each.report.runs for each in found if each.report is not None)
    print(f"{done} of {done + left} findings fixed ({share:.0%}), {bad} wrong, {runs} runs")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
