"""What torch's own logs say about a program: its recompiles, graph breaks, functions at the limit, and its output.

python benchmarks/advice/truth.py PROGRAM.py

Runs the program as it is, and once more with each fix of its label applied; fails if a fix does not remove its cost, changes
the output or makes the program raise. dynx takes no part in this.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from label import Cost, Fix, Label, apply, read_label

RECOMPILE = re.compile(r"\[__recompiles\] Recompiling function (?P<function>\S+) in (?P<file>.+):(?P<line>\d+)")
REASON = re.compile(r"\[__recompiles\]     - \d+/\d+: (?P<text>.*)")
BREAK = re.compile(r"\[__graph_breaks\] Graph break .*in user code at (?P<file>.+):(?P<line>\d+)")
LIMIT = re.compile(r"torch\._dynamo hit config\.(?:accumulated_)?recompile_limit.*|FailOnRecompileLimitHit")


@dataclass(frozen=True)
class Truth:
    """What happened in one run.

    `recompiles` has one text per event, in order: `file:line`, then the reason that torch logged; `breaks` has one per line.
    """

    output: str
    exit_code: int
    error: str
    recompiles: tuple[str, ...]
    breaks: tuple[str, ...]
    at_limit: int

    @property
    def total(self) -> int:
        return len(self.recompiles) + len(self.breaks) + self.at_limit


def run(program: Path, timeout: float = 600) -> Truth:
    """Run a program under `TORCH_LOGS=recompiles,graph_breaks`."""
    env = os.environ | {"TORCH_LOGS": "recompiles,graph_breaks", "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1"}
    env.pop("PYTHONPATH", None)
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, env=env, timeout=timeout, check=False)
    recompiles, breaks = [], []
    reasons_wanted = False
    for line in done.stderr.splitlines():
        if found := RECOMPILE.search(line):
            recompiles.append(f"{Path(found['file']).name}:{found['line']} {found['function']}")
            reasons_wanted = True
        elif (found := REASON.search(line)) and reasons_wanted:
            recompiles[-1] += f"  {' '.join(found['text'].split())}"
            reasons_wanted = False
        elif found := BREAK.search(line):
            breaks.append(f"{Path(found['file']).name}:{found['line']}")
    error = done.stderr.strip().splitlines()[-1] if done.returncode and done.stderr.strip() else ""
    return Truth(
        done.stdout,
        done.returncode,
        error,
        tuple(recompiles),
        tuple(dict.fromkeys(breaks)),
        sum(map(bool, map(LIMIT.search, done.stderr.splitlines()))),
    )


def _with_fix(program: Path, fix: Fix) -> Truth:
    with tempfile.TemporaryDirectory() as folder:
        fixed = Path(folder) / program.name
        fixed.write_text(apply(fix, program.read_text()))
        return run(fixed)


def _faults(before: Truth, cost: Cost, fix: Fix, after: Truth) -> list[str]:
    """Return what is wrong with a fix."""
    faults = []
    if after.exit_code and not before.exit_code:
        faults.append(f"raises: {after.error}")
    if after.exit_code and cost.kind == "failed":
        faults.append(f"still fails: {after.error}")
    if before.exit_code == 0 and after.output != before.output:
        faults.append(f"output differs:\n--- before\n{before.output}--- after\n{after.output}")
    gone = {
        "recompile": len(before.recompiles) - len(after.recompiles),
        "graph break": len(before.breaks) - len(after.breaks),
        "gave up": before.at_limit - after.at_limit,
        "failed": int(bool(before.exit_code)) - int(bool(after.exit_code)),
    }[cost.kind]
    if gone < cost.count - fix.leaves:
        faults.append(f"removes {gone} of {cost.count} {cost.kind}s")
    if cost.kind != "failed" and after.total > before.total - cost.count + fix.leaves:
        faults.append(f"costs more elsewhere: {after.recompiles} {after.breaks}")
    return faults


def check(program: Path, label: Label) -> list[str]:
    """Run a program and its fixes; return what is wrong with its label."""
    before = run(program)
    print(f"{program.name}: exit {before.exit_code} {before.error}")
    for kind, events in (("recompile", before.recompiles), ("graph break", before.breaks)):
        for event in events:
            print(f"  {kind} {event}")
    print(f"  at the limit: {before.at_limit}\n  output: {before.output!r}")
    faults = []
    for kind, number in (("recompile", len(before.recompiles)), ("graph break", len(before.breaks))):
        labelled = sum(cost.count for cost in label.costs if cost.kind == kind)
        if labelled != number:
            faults.append(f"{number} {kind}s in torch's log, {labelled} in the label")
    for cost in label.costs:
        for fix in cost.fixes:
            faults += [
                f"{cost.cause!r}, fix {fix.advice!r}: {fault}" for fault in _faults(before, cost, fix, _with_fix(program, fix))
            ]
    return faults


if __name__ == "__main__":
    found = []
    for name in sys.argv[1:]:
        path = Path(name)
        found += [f"{path.name}: {fault}" for fault in check(path, read_label(path))]
    print("\n".join(found) or "ok")
    sys.exit(bool(found))
