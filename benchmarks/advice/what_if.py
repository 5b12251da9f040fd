"""What dynx predicts that a fix would do, and what it does: each program is run, and run again with each fix that was tried.

    python benchmarks/advice/what_if.py [--jobs 2] [program.py …]

Without arguments, all labelled programs and the programs of the tests are run. A prediction is right if the function is
compiled as often as predicted, or raises as predicted, or if a graph break is gone, stays or leads to another as predicted.
"later calls" are compilations for calls after the limit at which torch gave the function up, of which nothing is predicted.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from pathlib import Path

from dynx import Run
from dynx._rewrites import Files, ways
from dynx.fix._plan import Plan
from dynx.fix._program import Program, Result, run
from dynx.records import Finding, GraphBreak, WhatIf

ROOT = Path(__file__).resolve().parents[2]
_TIMEOUT = 600.0  # seconds for a run of a program


def predicted(program: Path) -> Run | None:
    """Run a program with all what-ifs; return None if it cannot be run."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "run.dynx")
        command = [sys.executable, "-m", "dynx", "run", "--what-if", "inf", "--out", str(file), str(program)]
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=_TIMEOUT, cwd=folder, check=False)
        return Run.load(file) if file.is_file() else None


def compiles_of(found: Run, what_if: WhatIf) -> int:
    """Return how often torch compiled the function of a what-if."""
    key = what_if.location.file, what_if.location.line, what_if.location.function
    ours = (each for each in found.compiles if (each.location.file, each.location.line, each.location.function) == key)
    return sum(each.outcome == "compiled" for each in ours)


def check(program: Path) -> list[tuple[str, WhatIf, str]]:
    """Return, for each what-if of a program, whether it was right: "equal", "wrong" or "not proven", and what happened."""
    found = predicted(program)
    checked = []
    for what_if in found.what_ifs if found is not None else ():
        if not what_if.is_proven:
            checked.append(("not proven", what_if, what_if.reason))
        elif (plan := plan_of(what_if, program)) is not None:
            result = run(Program(str(program)), plan, timeout=_TIMEOUT)
            if what_if.graph_break is not None:
                said, happened = _of_break(what_if, found), _happened_at_break(what_if, found, result)
                checked.append(("equal" if said == happened else "wrong", what_if, f"said {said}, happened {happened}"))
                continue
            happened = _happened(result, what_if)
            no_less = what_if.outcome == "no effect" and compiles_of(result.run, what_if) >= compiles_of(found, what_if)
            at_limit = any(each.location == what_if.location for each in found.gave_up)
            later = at_limit and compiles_of(result.run, what_if) > what_if.compiles  # for calls that were not compiled before
            is_equal = happened == _said(what_if) or happened == f"{_of_all_parts(what_if, found)} compiles"
            verdict = "equal" if no_less or is_equal else "later calls" if later else "wrong"
            checked.append((verdict, what_if, happened))
    return checked


def plan_of(what_if: WhatIf, program: Path) -> Plan | None:
    """Return the change of a program with a fix; None if the fix is none that this script can make."""
    if all(fix.kind in ("statement", "option", "mark") for fix in (what_if.fix, *what_if.together)):
        return Plan((what_if.fix, *what_if.together))
    if what_if.together:
        return None
    finding = Finding(what_if.rule, "", what_if.fix.location or what_if.location, 0.0, "", "")
    changed = next(ways(Files({}, str(program)), finding, what_if.fix), None)
    return Plan(sources=changed) if changed is not None else None


def _of_all_parts(what_if: WhatIf, found: Run) -> int:
    """Return the predicted compilations of all functions at the line of a what-if: two graph breaks split one line in three."""
    about = what_if.location, what_if.fix, what_if.together
    same = (each for each in found.what_ifs if (each.location, each.fix, each.together) == about)
    return sum({each.frame: each.compiles for each in same if each.graph_break is None}.values())


def _said(what_if: WhatIf) -> str:
    return "raises" if what_if.outcome == "raises" else f"{what_if.compiles} compiles"


def _happened(result: Result, what_if: WhatIf) -> str:
    if what_if.outcome == "raises":
        failed = any(each.outcome == "failed" and what_if.reason in (each.reason or "") for each in result.run.compiles)
        return "raises" if failed or what_if.reason in result.errors else f"{compiles_of(result.run, what_if)} compiles"
    return f"{compiles_of(result.run, what_if)} compiles"


def _of_break(what_if: WhatIf, before: Run) -> str:
    """Return what was predicted for a graph break: "gone", "stays", "another" or "raises"."""
    known = what_if.then is not None and _name(what_if.then) in map(_name, before.graph_breaks)
    if what_if.outcome == "leads to another":
        return "gone" if known else "another"
    return {"removes": "gone", "no effect": "stays"}.get(what_if.outcome, what_if.outcome)


def _name(found: GraphBreak) -> tuple[str, str, str]:
    """Return what is the same for a graph break if a fix adds or removes lines above it."""
    return found.location.file, found.kind or found.reason, found.code


def _happened_at_break(what_if: WhatIf, before: Run, result: Result) -> str:
    known, causes = ({_name(each) for each in found.graph_breaks} for found in (before, result.run))
    own = {_name(each) for each in before.graph_breaks if each.cause == what_if.graph_break}
    failed = [each for each in result.run.compiles if each.outcome == "failed"]
    if own & causes:
        return "stays"
    if len(failed) > sum(each.outcome == "failed" for each in before.compiles):
        return "raises"
    return "another" if causes - known else "gone"


def main() -> None:
    """Print each prediction that is wrong, and the totals."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("programs", nargs="*", type=Path)
    options = parser.parse_args()
    programs = [each.resolve() for each in options.programs]
    if not programs:
        programs = [*sorted(Path(__file__).parent.glob("programs/*.py")), *sorted((ROOT / "tests/programs").glob("*/*.py"))]
    total: Counter[str] = Counter()
    pool = ThreadPoolExecutor(options.jobs)
    with suppress(KeyboardInterrupt):  # then print what was compared
        of = {pool.submit(check, program): program for program in programs}
        for done in as_completed(of):
            program = of[done]
            total["programs"] += 1
            for verdict, what_if, happened in done.result():
                total[verdict] += 1
                if verdict != "equal":
                    what = f"{what_if.rule} {what_if.fix.code} {what_if.location.function}"
                    said = f"{_said(what_if)} of {what_if.calls}"
                    print(f"{program.name}: {what}: {verdict}: {said}: {happened}", flush=True)
    print(dict(total), flush=True)
    pool.shutdown(wait=False, cancel_futures=True)


if __name__ == "__main__":
    main()
