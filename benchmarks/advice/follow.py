"""Follow each printed alternative of the advice literally, where it is code: what it does to the program.

    python benchmarks/advice/follow.py [--jobs N] [program.py …]

Without programs, all labelled programs and the programs of the tests are run. An alternative is what stands between "; or ",
", or " and "; ". Settings, arguments of torch.compile, marks and tensors instead of numbers are code, other alternatives prose.
An alternative is wrong if the program then raises, prints something else, or if a cost grows. Exits with 1 if one is.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from dynx import Run
from dynx._what_if.budget import SHARE
from dynx.fix._judge import Comparison, events_of, key_of, output_difference
from dynx.fix._output import Tolerance, varying_numbers
from dynx.fix._plan import Plan
from dynx.fix._program import Program, Result, run
from dynx.fix._propose import rewritten
from dynx.records import Finding
from dynx.records.fix import Fix, Mark

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT = 600.0  # seconds for a run of a program
SLOWER = 1.5  # a cost too, if no count of another kind becomes smaller
NOISE = 2.0  # seconds
BETWEEN = re.compile(r"; or |, or |; ")
# a program that sets an option itself has to change that line: "set … = True, which is torch's default" is prose
SETTING = re.compile(r"(?<![\w.])((?:torch\._dynamo\.)?config\.\w+(?: = [^\s;,)]+|\.add\([\w.]+\)))")
OPTION = re.compile(r"\b(?:compile|each|module) with (\w+=\w+)")
MARK = re.compile(r"\b(maybe_)?mark_dynamic\((.+?), (\d+)\)")
MARKS = re.compile(r"for t in \[(.+)\]: (maybe_)?mark_dynamic\(t, (\d+)\)")
AS_TENSOR = re.compile(r"\bpass \S+ as a tensor\b")


@dataclass(frozen=True)
class Followed:
    """What following one alternative does: "wrong", "helps", "no effect" or "prose"."""

    finding: Finding
    text: str
    is_first: bool
    verdict: str
    reason: str = ""


def fixes_in(text: str, finding: Finding) -> Iterator[Fix]:
    """Yield the changes that an alternative says to make; several only if each is one way to write it."""
    if (setting := SETTING.search(text)) and "torch's default" not in text:
        # the user's file imports what a setting names, such as `warnings`; a fix imports it itself
        yield next((fix for fix in finding.fixes if setting[1] in fix.code), Fix("statement", setting[1]))
    elif option := OPTION.search(text):
        yield Fix("option", option[1])
    elif loop := MARKS.search(text):
        own = tuple(Mark(source, int(loop[3])) for source in loop[1].split(", "))
        found = next((fix for fix in finding.fixes if fix.kind == "mark"), None)
        if found is not None:
            yield replace(found, code=text, marks=own, may_fail=not loop[2])
    elif marks := MARK.findall(text):
        own = tuple(Mark(source, int(dim)) for _, source, dim in marks)
        found = next((fix for fix in finding.fixes if fix.kind == "mark"), None)
        if found is not None:
            yield replace(found, code=text, marks=own, may_fail=not all(maybe for maybe, _, _ in marks))
    elif AS_TENSOR.search(text):
        yield from (fix for fix in finding.fixes if fix.rewrite == "tensor argument")


def follow(program: Path) -> list[Followed]:
    """Run a program, then again with each alternative of its advice that is code."""
    target = Program(str(program))
    base = run(target, Plan(), timeout=TIMEOUT, what_if=SHARE)
    propose = rewritten(target)
    comparison: Comparison | None = None
    done = []
    for finding in base.run.findings:
        for number, text in enumerate(BETWEEN.split(finding.advice)):
            for fix in fixes_in(text, finding):
                if comparison is None:
                    comparison = varying(base, target)
                plans = [Plan((fix,))] if fix.kind != "rewrite" else list(propose(Plan(), finding, fix))[:1]
                for plan in plans:
                    after = run(target, plan, timeout=TIMEOUT)
                    verdict, reason = judged(finding, fix, base, after, comparison)
                    done.append(Followed(finding, text, number == 0, verdict, reason))
                if plans:
                    break
            else:
                done.append(Followed(finding, text, number == 0, "prose"))
    return done


def varying(base: Result, target: Program) -> Comparison:
    """Return how outputs are compared: numbers that differ in a second run of the unchanged program are left out."""
    again = run(target, Plan(), timeout=TIMEOUT)
    numbers = varying_numbers(base.output, again.output, Tolerance())
    return Comparison(Tolerance(), numbers or frozenset(), numbers is not None)


def judged(finding: Finding, fix: Fix, before: Result, after: Result, comparison: Comparison) -> tuple[str, str]:
    """Return the verdict on an alternative, and why it is wrong."""
    old, new = events_of(before.run), events_of(after.run)
    if after.exit_code != before.exit_code and not before.exit_code:
        return "wrong", f"raises: {after.last_line}"
    if new.failed > old.failed:
        return "wrong", f"a compilation fails: {next((each.reason for each in after.run.compiles if each.reason), '')}"
    if (grown := old.to(new)) and any(now > then for then, now in zip(old.counts, new.counts, strict=True)):
        is_above_limit = "_limit" in fix.code and new.gave_up < old.gave_up
        is_compiled_now = new.eager < old.eager or new.gave_up < old.gave_up
        if not (is_above_limit or is_compiled_now):
            return "wrong", f"grows: {grown}"
    if new.counts == old.counts and new.seconds > SLOWER * old.seconds + NOISE:
        return "wrong", f"grows: {old.seconds:.1f} s of compiling, then {new.seconds:.1f} s"
    if comparison.is_possible and (differs := output_difference(before, after, comparison)):
        return "wrong", f"other output: {differs}"
    helps = _count(finding, after.run) < _count(finding, before.run) or sum(new.counts) < sum(old.counts)
    return ("helps", "") if helps else ("no effect", old.to(new))


def _count(finding: Finding, found: Run) -> int:
    return sum(each.count for each in found.findings if key_of(each) == key_of(finding))


def main() -> None:
    """Print each alternative that is not right, and the totals."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("programs", nargs="*", type=Path)
    args = parser.parse_args()
    programs = [each.resolve() for each in args.programs]
    if not programs:
        programs = [*sorted(Path(__file__).parent.glob("programs/*.py")), *sorted((ROOT / "tests/programs").glob("*/*.py"))]
    total: Counter[str] = Counter()
    pool = ThreadPoolExecutor(args.jobs)
    with suppress(KeyboardInterrupt):  # then print what was followed
        of = {pool.submit(follow, program): program for program in programs}
        for done in as_completed(of):
            total["programs"] += 1
            for each in done.result():
                total[each.verdict] += 1
                total["first, " + each.verdict] += each.is_first
                if each.verdict in ("wrong", "no effect"):
                    print(f"{of[done].name}: {each.finding.rule} {each.text!r}: {each.verdict}: {each.reason}", flush=True)
    print(dict(total), flush=True)
    pool.shutdown(wait=False, cancel_futures=True)
    sys.exit(1 if total["wrong"] else 0)


if __name__ == "__main__":
    main()
