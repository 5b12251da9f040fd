"""Turn causes of recompiles into findings; one change that recompiles several functions is one finding."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from dynx.advice.facts import fixes, libraries
from dynx.advice.facts.names import UNNAMED, spoken
from dynx.advice.facts.reasons import is_counted, is_result
from dynx.advice.findings.described import changes, evidence, subject_of, value_of
from dynx.advice.findings.roots import OfCauses
from dynx.advice.proof.what_ifs import of_parts, with_what_ifs
from dynx.advice.rule import Advice, Cause
from dynx.records.finding import Alternative, Finding
from dynx.records.location import Location
from dynx.records.recompile import Reason

_MAX_ATTRIBUTES = 4  # in a title


def find_all(causes: Iterable[Cause]) -> tuple[OfCauses, ...]:
    """Return a finding for each cause of recompiles, with its causes; causes with the same change share one finding.

    For example, a graph break splits a function, and each part of it recompiles when the size of a common input changes.
    """
    merged: dict[object, list[Cause]] = {}
    keys: dict[object, object] = {}  # from both keys of a cause, `same_line` and `same_whole`, to the key of its group
    for cause in causes:
        own = _location(cause).own
        same_line = (cause.rule.id, cause.first.expected, cause.first.got, own.file, own.line)
        same_whole = change_of(cause)
        group = keys.get(same_line) or keys.get(same_whole) or same_line
        keys.setdefault(same_line, group)
        keys.setdefault(same_whole, group)
        merged.setdefault(group, []).append(cause)
    return tuple(OfCauses(find_joined(group), group) for group in merged.values())


def change_of(cause: Cause) -> tuple[object, ...]:
    """Return a key that is equal for causes with the same change in different parts of a function that graph breaks split.

    The key leaves out the name of the changed value if the parts may use different names for it.
    """
    name = "" if cause.rule.is_common(cause.first) else spoken(cause.first.source)
    return cause.rule.id, cause.first.expected, cause.first.got, cause.whole, name


def _assigns(cause: Cause) -> bool:
    """Return whether the line that requested the guard also assigns the guarded value, and so shows why it changes."""
    return bool(re.match(rf"{re.escape(spoken(cause.first.source))}\s*[-+*/]?=(?!=)", cause.first.code))


def find_joined(causes: Sequence[Cause]) -> Finding:
    """Return one finding for causes with the same change; its title names the graph breaks that split the function."""
    found = list(map(find, causes))
    kept = found[list(causes).index(main_cause(causes))]
    found_fixes = fixes.of_causes(causes)
    what_ifs = of_parts(
        [cause.what_ifs for cause in causes], found_fixes, [each for cause in causes for each in cause.elsewhere]
    )
    return replace(
        kept.advised(with_what_ifs(_for_parts(kept.alternatives, causes), what_ifs)),
        title=f"{kept.title}{split_by(causes)}",
        seconds=sum(finding.seconds for finding in found),
        count=sum(finding.count for finding in found),
        evidence=kept.evidence + tuple(line for finding in found if finding is not kept for line in finding.evidence),
        fixes=found_fixes,
        what_ifs=what_ifs,
    )


def main_cause(causes: Sequence[Cause]) -> Cause:
    """Return the cause that decides the line and the advice of a finding for several causes.

    Prefer, in this order: the line assigns the changed value; the function is no resume function; the line is in user code.
    """
    return min(causes, key=lambda cause: (not _assigns(cause), cause.after is not None, _location(cause).library is not None))


def advice_on(cause: Cause) -> Advice:
    """Return the advice for a cause, from `facts/libraries.py` if it has advice on the changed value, else from the rule."""
    advice = libraries.advice_on_value(cause.first) or cause.rule.advice(cause)
    nameless = UNNAMED.search(spoken(cause.first.source))
    if nameless is None or not any(nameless[0] in each.text for each in advice.alternatives):
        return advice
    named = [each for each in advice.alternatives if nameless[0] not in each.text]
    first = Alternative(f"remove the graph break at line {nameless['line']}: this value is then inside one graph")
    return advice._replace(alternatives=(first, *named))


def _for_parts(advice: Sequence[Alternative], causes: Sequence[Cause]) -> Sequence[Alternative]:
    """Return `advice`. If it says to mark a size, but a library breaks the graph, first advise to remove the graph breaks."""
    in_libraries = [cause.after for cause in causes if cause.after is not None and cause.after.location.library is not None]
    if not in_libraries or not advice[0].does.endswith("mark_dynamic"):
        return advice
    first = "remove the graph breaks, then compile with dynamic=True: marks do not reach sizes computed after a graph break"
    return [Alternative(first), *advice]


def split_by(causes: Sequence[Cause]) -> str:
    """Return text to append to a title: the lines of the graph breaks that split the function; empty if there are none."""
    breaks = sorted({cause.after.location.own.line for cause in causes if cause.after is not None})
    if not breaks or len(causes) == 1:
        return ""
    lines = " and ".join(map(str, breaks))
    plural = "s" if len(breaks) > 1 else ""
    return f"; recompiles {len(causes)} parts of the function, split by the graph break{plural} at line{plural} {lines}"


def find(cause: Cause) -> Finding:
    """Return the finding for one cause of recompiles: the changed value, the seconds spent recompiling, and the advice."""
    reason = cause.first
    return Finding(
        cause.rule.id,
        _title(cause),
        _location(cause),
        sum(recompile.seconds for recompile in cause.recompiles),
        evidence(cause),
        "",
        len(cause.recompiles),
        cause.called_from.own if cause.called_from is not None and not is_counted(reason) else None,
    ).advised(advice_on(cause).alternatives)


def _location(cause: Cause) -> Location:
    fixed = cause.fixed.location if cause.fixed is not None else None
    if cause.after is not None and is_result(cause):
        return cause.after.location
    return fixed or cause.first.location or cause.recompiles[0].location


def _title(cause: Cause) -> str:
    if cause.recompiles[0].outcome == "refused":
        return f'raised under the stance "fail_on_recompile": {subject_of(cause.first)} {changes(cause)}'
    if cause.first.kind == "held":
        return f"no guard failed in this process, {cause.first.got}"
    if (branch := _branch(cause.first)) and cause.first.got is not None:
        return f"{branch} takes the other branch: {subject_of(cause.first)} is {cause.first.got}"
    if cause.first.kind == "shape":
        now = f": {subject_of(cause.first)} is {cause.first.got}" if cause.first.got is not None else ""
        return f"the guard {value_of(cause.first, cause.first.expected)} fails{now}"
    title = f"{subject_of(cause.first)} {changes(cause)}"
    if cause.hidden_by is not None:
        return f"{title}; in the same calls as {subject_of(cause.hidden_by)}"
    if cause.rule.id == "DX115":
        count = max(recompile.reasons[0].instances for recompile in cause.recompiles) or len(cause.recompiles) + 1
        shared = f"{count} instances of {cause.first.other_instance} share its compiled code"
        return f"{shared}: {_instances(cause)}"
    if cause.after is not None and is_result(cause):
        return f"{title}; computed before the graph break: {cause.after.code}"
    return f"{title}{fixed_by(cause)}"


def fixed_by(cause: Cause) -> str:
    """Return text to append to a title: the statement that specialized a symbolic size or number; empty if there is none."""
    return f"; fixed by: {cause.fixed.code}" if cause.fixed is not None and cause.fixed.code else ""


def _instances(cause: Cause) -> str:
    """Describe how instances of a class differ: the values of one attribute, and the names of other attributes that differ."""
    reason = cause.first
    same = tuple(recompile for recompile in cause.recompiles if recompile.reasons[0].source == reason.source)
    title = f"{subject_of(reason)} {changes(replace(cause, recompiles=same))}"
    names = dict.fromkeys(
        name for recompile in cause.recompiles for name in (recompile.reasons[0].source, *recompile.reasons[0].differing)
    )
    others = [spoken(name) for name in names if name != reason.source]
    if not others:
        return title
    listed = ", ".join(others[:_MAX_ATTRIBUTES]) + (", …" if len(others) > _MAX_ATTRIBUTES else "")
    return f"{title}; {listed} differ{'s' if len(others) == 1 else ''} too"


def _branch(reason: Reason) -> str:
    """Return the source of the `if`, `elif` or `while` that created a guard on symbolic sizes or numbers, or an empty text."""
    match = re.match(r"(?:if|elif|while)\b.*?:(?=\s|$)", reason.code) if reason.kind == "shape" else None
    return match[0] if match else ""
