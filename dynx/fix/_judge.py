"""Decide whether to keep a fix that was tried: the finding is gone, nothing else costs more, and the output is the same."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import NamedTuple

from dynx._run import Run
from dynx.fix._output import Tolerance, difference
from dynx.fix._program import Result
from dynx.records import Finding
from dynx.records.fix import Fix
from dynx.records.trial import Events, Outcome, Trial

# limits for the ratio of compile times if only recompiles become fewer: this more for each recompile after the first
_MORE, _MOST = 0.1, 2.0
_NOISE = 0.5  # seconds by which compile times of two runs of a program differ without a change on a busy machine


class FindingKey(NamedTuple):
    """Key of a finding that stays the same when line numbers change: its rule, function and file."""

    rule: str
    function: str
    file: str


def key_of(finding: Finding) -> FindingKey:
    """Return the key of a finding: rule, function and file."""
    own = finding.location.own
    return FindingKey(finding.rule, own.function, own.file)


@dataclass(frozen=True, slots=True)
class Comparison:
    """How outputs of two runs are compared: the tolerance, and the positions of numbers that vary even without a change."""

    tolerance: Tolerance
    varying: frozenset[int] = frozenset()
    is_possible: bool = True  # False if the printed text varies from run to run


def events_of(run: Run) -> Events:
    """Return the costs of a run: counts of recompiles, graph breaks and functions not compiled, and the compile time."""
    return Events(
        len(run.recompiles),
        sum(found.count for found in run.graph_breaks),
        len(run.gave_up),
        len(run.eager),
        sum(compile.outcome == "failed" for compile in run.compiles),
        run.compile_seconds,
    )


def judge(finding: Finding, fix: Fix, before: Result, after: Result, comparison: Comparison) -> Trial:
    """Return the `Trial` that compares the runs before and after a fix for `finding`.

    If the fix helps against another finding instead, the trial is about that finding.
    """
    helped = _helped(finding, before, after)
    outcome, reason, same = _outcome(fix, helped, before, after, comparison)
    about = helped if helped is not None and outcome in ("kept", "leads to another") else finding
    new = None if after.was_stopped else events_of(after.run)
    return Trial(about.rule, about.title, about.location, fix, outcome, events_of(before.run), new, same, reason)


def _helped(finding: Finding, before: Result, after: Result) -> Finding | None:
    """Return a finding that the fix removed or made less frequent, `finding` itself if possible; None if there is none."""
    candidates = (finding, *before.run.findings)
    fewer = (each for each in candidates if _occurrences(each, after.run) < _occurrences(each, before.run))
    return next(fewer, None)


def _outcome(
    fix: Fix, helped: Finding | None, before: Result, after: Result, comparison: Comparison
) -> tuple[Outcome, str, bool | None]:
    """Return outcome, reason, and whether the output is the same (None if not compared). `fix` reduced the finding `helped`."""
    if after.was_stopped:
        return "takes too long", f"stopped after {after.seconds:.0f} s, where it takes {before.seconds:.0f} s without it", None
    if after.exit_code and not before.exit_code:
        return "fails", after.last_line, False
    old, new = events_of(before.run), events_of(after.run)
    change = old.to(new)
    if _weight(new) > _weight(old):
        return "costs more", change, None
    if helped is None:
        return "no effect", change, None
    most = min(1.0 + _MORE * max(old.recompiles - new.recompiles - 1, 0), _MOST)
    if new.seconds > most * old.seconds + _NOISE and new.counts[1:] == old.counts[1:]:
        return "costs more", f"{old.seconds:.2f} s of compiling, then {new.seconds:.2f} s", None
    differs = output_difference(before, after, comparison)
    if differs is not None:
        return "other output", differs, False
    if _weight(new) == _weight(old) or _grows(fix, old, new) or _breaks_only_more(before.run, after.run):
        titles = "; ".join(each.title for each in new_findings(before, after))
        return "leads to another", titles or (f"{new} remain" if new.counts == old.counts else change), True
    return "kept", "", True


def new_findings(before: Result, after: Result) -> list[Finding]:
    """Return the findings that only the run with the fix has, such as a graph break behind one that the fix removed."""
    known = set(map(key_of, before.run.findings))
    return [each for each in after.run.findings if key_of(each) not in known]


def compiled_functions(run: Run) -> set[tuple[str, str]]:
    """Return the file and name of each function that has compiled code."""
    return {(each.location.file, each.location.function) for each in run.compiles if each.outcome == "compiled"}


def traced_functions(run: Run) -> set[tuple[str, str]]:
    """Return the file and name of each function that Dynamo began to trace, even if nothing was compiled."""
    return {(each.location.file, each.location.function) for each in run.compiles}


def _occurrences(finding: Finding, run: Run) -> int:
    key = key_of(finding)
    return sum(each.count for each in run.findings if key_of(each) == key)


def _grows(fix: Fix, old: Events, new: Events) -> bool:
    """Return whether a cost, such as recompiles, rose without a good reason (more code compiled, a higher recompile limit)."""
    is_new_code = new.eager + new.failed < old.eager + old.failed
    is_above_limit = "recompile_limit" in fix.code and new.gave_up < old.gave_up and new.eager <= old.eager
    return not is_new_code and not is_above_limit and any(map(operator.gt, new.counts, old.counts))


def _breaks_only_more(before: Run, after: Run) -> bool:
    """Return whether the graph breaks at a statement where it did not, and everywhere else where it did.

    A number that becomes a tensor saves recompiles, and breaks the graph where it is read as an index. Code that was not
    traced before has graph breaks of its own.
    """
    old, new = ({(each.location.file, each.code, each.kind) for each in run.graph_breaks} for run in (before, after))
    return new > old and traced_functions(after) <= traced_functions(before)


def _weight(events: Events) -> int:
    """Return one number for the costs of a run; a function that runs eagerly weighs more than a recompile or graph break."""
    return events.recompiles + events.graph_breaks + 16 * (events.gave_up + events.failed) + 8 * events.eager


def output_difference(before: Result, after: Result, comparison: Comparison) -> str | None:
    """Return as text what differs in the output, exit code or global variables of two runs; None if nothing does."""
    if after.exit_code != before.exit_code and not before.exit_code:
        return f"exit code {before.exit_code}, then {after.exit_code}"
    if after.plan.values:
        return after.no_values or _difference_of_values(before.values, after.values, comparison.tolerance)
    if not comparison.is_possible:
        return "the program prints another text in each run: name a global variable to compare with --result"
    return difference(before.output, after.output, comparison.tolerance, comparison.varying, may_go_on=bool(before.exit_code))


def not_comparable(result: Result) -> str | None:
    """Return why the global variables of a run (`--result`) cannot be compared with those of another run; None if they can."""
    return _difference_of_values(result.values, result.values, Tolerance())


def _difference_of_values(before: object, after: object, tolerance: Tolerance) -> str | None:
    from torch.testing import assert_close

    try:
        assert_close(after, before, rtol=tolerance.relative, atol=tolerance.absolute, equal_nan=True, check_stride=False)
    except (AssertionError, TypeError, ValueError) as error:
        return " ".join(str(error).split())[:200]
    return None
