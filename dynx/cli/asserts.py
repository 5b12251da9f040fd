"""`dynx assert FILE --max-recompiles 0`: a saved run as a check in CI."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from dynx.cli.run import DEFAULT
from dynx.errors import UnknownRule, UsageError

# option, what it counts, the records that show it
_LIMITS = ("compiles", "recompiles", "graph_breaks", "gave_up", "eager", "findings")


def add_to(commands: Any) -> None:
    parser = commands.add_parser("assert", help="exit 1 when a saved run exceeds a limit")
    parser.add_argument("file", type=Path, nargs="?", default=DEFAULT)
    for name in _LIMITS:
        parser.add_argument(f"--max-{name.replace('_', '-')}", type=_count, metavar="N")
    parser.add_argument("--max-compile-seconds", type=float, metavar="S")
    parser.add_argument("--forbid", metavar="RULE", action="append", default=[], help="fail when this rule has a finding")
    parser.set_defaults(act=act)


def _count(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text} is not a count")
    return int(text)


def act(arguments: argparse.Namespace) -> int:
    from dynx.advice import RULES
    from dynx.records import Run

    asked = {name: getattr(arguments, f"max_{name}") for name in _LIMITS}
    seconds = arguments.max_compile_seconds
    if all(limit is None for limit in asked.values()) and seconds is None and not arguments.forbid:
        raise UsageError("nothing to assert\n  say what: dynx assert FILE --max-recompiles 0 --max-graph-breaks 0")
    unknown = [rule for rule in arguments.forbid if rule not in RULES]
    if unknown:
        raise UnknownRule(f"there is no rule {unknown[0]}\n  list them: dynx rule")
    run = Run.load(arguments.file)
    failures = [
        f"{name.replace('_', ' ')}: {len(getattr(run, name))}, at most {limit} allowed"
        for name, limit in asked.items()
        if limit is not None and len(getattr(run, name)) > limit
    ]
    if seconds is not None and run.compile_seconds > seconds:
        failures.append(f"compile seconds: {run.compile_seconds:.1f}, at most {seconds:g} allowed")
    failures += [
        f"{finding.rule} at {finding.location.own}: {finding.title}"
        for finding in run.findings
        if finding.rule in arguments.forbid
    ]
    failures += [
        f"{each.location}: compile {each.id} failed: {each.reason}" for each in run.compiles if each.outcome == "failed"
    ]
    if not run.compiles:
        failures.append("VACUOUS: nothing was compiled in this run, so nothing was checked")
    if not run.is_complete:
        failures.append("the run did not finish: the file has no end")
    for failure in failures:
        print(f"FAILED {failure}")
    if not failures:
        print(f"ok: {run!r}")
    return 1 if failures else 0
