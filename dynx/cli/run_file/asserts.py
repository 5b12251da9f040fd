"""`dynx assert FILE --max-recompiles 0`: check a saved run, for use in CI."""

from __future__ import annotations

import argparse
from pathlib import Path

from dynx.cli.command import Subparsers
from dynx.cli.numbers import number
from dynx.cli.run_file import DEFAULT, UNREADABLE, load
from dynx.errors import UnknownRule, UsageError

_LIMITS = {  # properties of a run that have an option --max-NAME
    "compiles": "number of compilations",
    "recompiles": "number of recompiles",
    "graph_breaks": "number of graph breaks",
    "gave_up": "number of functions that reached the recompile limit",
    "eager": "number of functions that run eagerly",
    "findings": "number of findings, of any rule",
}


def add_to(commands: Subparsers) -> None:
    parser = commands.add_parser("assert", help="check a saved run: exit code 1 if it exceeds a limit, 3 if it is damaged")
    parser.add_argument("file", type=Path, nargs="?", default=DEFAULT, help="the run file (default: %(default)s)")
    for name, text in _LIMITS.items():
        parser.add_argument(f"--max-{name.replace('_', '-')}", type=_count, metavar="N", help=text)
    parser.add_argument(
        "--max-compile-seconds",
        type=number("a number of seconds", lambda seconds: seconds >= 0),
        metavar="S",
        help="fail if all compilations together took more than S seconds",
    )
    parser.add_argument(
        "--forbid", metavar="RULE", action="append", default=[], help="fail if this rule has a finding; may be repeated"
    )
    parser.set_defaults(act=act)


def _count(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text} is not a non-negative integer")
    return int(text)


def act(arguments: argparse.Namespace) -> int:
    from dynx.advice import RULES

    limits = {name: getattr(arguments, f"max_{name}") for name in _LIMITS}
    seconds = arguments.max_compile_seconds
    if all(limit is None for limit in limits.values()) and seconds is None and not arguments.forbid:
        raise UsageError("no limit to check\n  pass at least one: dynx assert FILE --max-recompiles 0 --max-graph-breaks 0")
    unknown = [rule for rule in arguments.forbid if rule not in RULES]
    if unknown:
        raise UnknownRule(f"no rule has the id {unknown[0]}\n  list all rules: dynx rule")
    run = load(arguments.file)  # prints a warning for each problem
    if run.problems or run.unknown:
        kinds = ", ".join(sorted({str(record.get("type")) for record in run.unknown}))
        problem = run.problems[0] if run.problems else f"it has records of an unknown kind, {kinds}: upgrade dynx"
        print(f"UNREADABLE {arguments.file}: {problem}\n  nothing was checked")
        return UNREADABLE
    failures = [
        f"{name.replace('_', ' ')}: {len(getattr(run, name))}, at most {limit} allowed"
        for name, limit in limits.items()
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
        f"{compile.location}: compile {compile.id} failed: {compile.reason}"
        for compile in run.compiles
        if compile.outcome == "failed"
    ]
    if all(compile.outcome == "skipped" for compile in run.compiles):
        from dynx.report._uncompiled import why
        from dynx.report._wrap import ordinary

        failures.append(f"VACUOUS: the run compiled nothing, so nothing was checked: {ordinary(why(run)[0].reason)}")
    if not run.is_complete:
        failures.append("the run did not finish: the file has no end record")
    for failure in failures:
        print(f"FAILED {failure}")
    if not failures:
        print(f"ok: {run!r}")
    return 1 if failures else 0
