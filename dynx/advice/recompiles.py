"""Findings for recompiles: one for each cause, with what changed, where, and the seconds spent recompiling."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from dynx.advice import fixes
from dynx.advice.breaks.resumed import Part, frame_of, parts_of
from dynx.advice.names import LOCAL, SIZE, is_array, spoken
from dynx.advice.recompile_rules import (
    DEVICES,
    MEMBER_OF_ENUM,
    RULES,
    advice_on,
    differs_by_instance,
    is_counted,
    is_device,
    is_grad_mode,
    is_result,
)
from dynx.advice.rule import Cause, FrameKey, RecompileRule, first_match
from dynx.records.compile import Compile
from dynx.records.finding import Finding
from dynx.records.fix import Mark
from dynx.records.graph_break import GraphBreak
from dynx.records.location import Location
from dynx.records.observed import BecameDynamic, Specialized
from dynx.records.recompile import Reason, Recompile

_MAX_ATTRIBUTES = 4  # in a title


class CauseKey(NamedTuple):
    """Key by which recompiles are grouped into causes: frame, advice rule and changed value."""

    frame: FrameKey
    rule: str
    subject: str


def causes(
    recompiles: Iterable[Recompile],
    dynamic: Iterable[BecameDynamic] = (),
    specialized: Iterable[Specialized] = (),
    compiles: Iterable[Compile] = (),
    breaks: Iterable[GraphBreak] = (),
) -> tuple[Cause, ...]:
    """Group recompiles by function, advice rule and changed value; recompiles to which no rule applies are omitted."""
    dynamic, compiles = tuple(dynamic), tuple(compiles)
    breaks = tuple(breaks)
    parts = parts_of(compiles, breaks)
    fixed = {(record.generation, record.id, LOCAL.sub(r"\1", record.source)): record for record in specialized}
    callers = {compile.key: compile.called_from for compile in compiles}
    first_calls = {frame_of(compile.key): compile.called_from for compile in reversed(compiles)}
    varying = _varying_sizes(dynamic)
    groups: dict[CauseKey, list[Recompile]] = {}
    rules: dict[str, RecompileRule] = {rule.id: rule for rule in RULES}
    for recompile in recompiles:
        if recompile.id.startswith("!"):
            continue  # compiled autograd: the changed value is not a variable of the user's code
        rule = first_match(RULES, recompile.reasons[0]) if recompile.reasons else None
        if rule is not None:
            key = CauseKey(frame_of(recompile.key), rule.id, _subject(recompile.reasons[0]))
            groups.setdefault(key, []).append(recompile)
    return tuple(
        Cause(
            rules[key.rule],
            tuple(group),
            _marks_of_equal_sizes(group[0], dynamic),
            varying.get(key.frame, ()),
            callers.get(group[0].key),
            _fixed_by(group, fixed),
            *_part(key.frame, parts),
            _break_at(callers.get(group[0].key), breaks),
            first_call=first_calls.get(parts[key.frame].whole if key.frame in parts else key.frame),
        )
        for key, group in groups.items()
    )


def _fixed_by(group: list[Recompile], fixed: dict[tuple[int, str, str], Specialized]) -> Specialized | None:
    """Return the line that fixed the changed value in its last recompile.

    An earlier one may have fixed it only because torch had not yet made another size symbolic that it is compared with.
    """
    last = next((recompile for recompile in reversed(group) if recompile.outcome == "compiled"), group[-1])
    return fixed.get((last.generation, last.id, last.reasons[0].source))


def _break_at(call: Location | None, breaks: tuple[GraphBreak, ...]) -> GraphBreak | None:
    """Return the graph break that was reached through the line of a call: the called function is then compiled on its own."""
    if call is None:
        return None
    line = call.own.file, call.own.line
    return next((found for found in breaks if line in [(entry.own.file, entry.own.line) for entry in found.chain]), None)


def _part(frame: FrameKey, parts: Mapping[FrameKey, Part]) -> tuple[GraphBreak | None, FrameKey]:
    part = parts.get(frame)
    return (part.after, part.whole) if part is not None else (None, frame)


def _marks_of_equal_sizes(recompile: Recompile, dynamic: tuple[BecameDynamic, ...]) -> tuple[Mark, ...]:
    """Return marks for the other dimensions that changed from and to the same sizes in this recompile.

    For example, several tensors have the batch size: marking only one of them raises ConstraintViolationError.
    """
    reason = recompile.reasons[0]
    if reason.kind != "size":
        return ()
    alike = [
        change
        for change in dynamic
        if (change.generation, change.id) == recompile.key and (change.first, change.second) == (reason.expected, reason.got)
    ]
    marks = (_mark(change) for change in alike)
    return tuple(mark for mark in marks if mark is not None and f"{mark.source}.size()[{mark.dim}]" != reason.source)


def _mark(change: BecameDynamic) -> Mark | None:
    """Return the mark for a size that became dynamic; None for one that cannot be marked: items of *args have no name."""
    tensor = LOCAL.sub(r"\1", change.source)
    if not change.dim.startswith("size ") or is_array(tensor) or tensor.startswith("args[") or "._base" in tensor:
        return None
    return Mark(tensor, int(change.dim.removeprefix("size ")))


def _varying_sizes(dynamic: Iterable[BecameDynamic]) -> Mapping[FrameKey, tuple[Mark, ...]]:
    """Return the sizes of each function that became dynamic in one of its recompiles."""
    found: dict[FrameKey, dict[Mark, None]] = {}
    for change in dynamic:
        if (mark := _mark(change)) is not None:
            found.setdefault(frame_of((change.generation, change.id)), {})[mark] = None
    return {frame: tuple(marks) for frame, marks in found.items()}


def find_all(causes: Iterable[Cause]) -> tuple[Finding, ...]:
    """Return one finding for each cause of recompiles; if one change recompiles several functions, it is one finding.

    For example, a graph break splits a function, and each part of it recompiles when the size of a common input changes.
    """
    merged: dict[object, list[Cause]] = {}
    keys: dict[object, object] = {}  # of both kinds, by which a cause joins others; to the key of their group
    for cause in causes:
        own = _location(cause).own
        same_line = (cause.rule.id, cause.first.expected, cause.first.got, own.file, own.line)
        same_whole = change_of(cause)
        group = keys.get(same_line) or keys.get(same_whole) or same_line
        keys.setdefault(same_line, group)
        keys.setdefault(same_whole, group)
        merged.setdefault(group, []).append(cause)
    return tuple(find_joined(group) for group in merged.values())


def change_of(cause: Cause) -> tuple[object, ...]:
    """Return what is equal for causes that are one change, in parts of one function that graph breaks split.

    The parts have other names for a tensor whose size or requires_grad changes.
    """
    is_common = (cause.rule.id == "DX102" and cause.first.kind == "size") or cause.rule.id == "DX106"
    name = "" if is_common else spoken(cause.first.source)
    return cause.rule.id, cause.first.expected, cause.first.got, cause.whole, name


def _assigns(cause: Cause) -> bool:
    """Return whether the line that requested the guard also assigns the value: it shows more than a line that only reads it."""
    return bool(re.match(rf"{re.escape(spoken(cause.first.source))}\s*[-+*/]?=(?!=)", cause.first.code))


def find_joined(causes: Sequence[Cause]) -> Finding:
    """Return one finding for causes that are one change of the program; the graph breaks that split the function are named."""
    first = min(causes, key=lambda cause: (not _assigns(cause), cause.after is not None, _location(cause).library is not None))
    found = list(map(find, causes))
    kept = found[list(causes).index(first)]
    return replace(
        kept,
        title=f"{kept.title}{split_by(causes)}",
        advice=_for_parts(kept.advice, causes),
        seconds=sum(finding.seconds for finding in found),
        count=sum(finding.count for finding in found),
        evidence=kept.evidence + tuple(line for finding in found if finding is not kept for line in finding.evidence),
        fixes=fixes.of_causes(causes),
    )


def _for_parts(advice: str, causes: Sequence[Cause]) -> str:
    """Return the advice for a size that recompiles several parts of a function between graph breaks in libraries."""
    in_libraries = [cause.after for cause in causes if cause.after is not None and cause.after.location.library is not None]
    if not in_libraries or not advice.startswith("mark_dynamic("):
        return advice
    first = "remove the graph breaks, then compile with dynamic=True: marks do not reach sizes computed after a graph break"
    return f"{first}; or {advice}"


def split_by(causes: Sequence[Cause]) -> str:
    """Return the end of a title that names the graph breaks which split a function; empty if it has one part."""
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
        _with_partners(advice_on(cause), cause),
        len(cause.recompiles),
        cause.called_from.own if cause.called_from is not None and not is_counted(reason) else None,
    )


def _location(cause: Cause) -> Location:
    fixed = cause.fixed.location if cause.fixed is not None else None
    if cause.after is not None and is_result(cause):
        return cause.after.location
    return fixed or cause.first.location or cause.recompiles[0].location


def _title(cause: Cause) -> str:
    if cause.recompiles[0].outcome == "refused":
        return f'raised under the stance "fail_on_recompile": {subject_of(cause.first)} {changes(cause)}'
    if branch := _branch(cause.first):
        return f"{branch} takes the other branch: {subject_of(cause.first)} is {cause.first.got}"
    if cause.first.kind == "shape":
        return f"the guard {value_of(cause.first, cause.first.expected)} fails: {subject_of(cause.first)} is {cause.first.got}"
    title = f"{subject_of(cause.first)} {changes(cause)}"
    if cause.rule.id == "DX115":
        shared = f"{len(cause.recompiles) + 1} instances of {cause.first.other_instance} share its compiled code"
        return f"{shared}: {_instances(cause)}"
    if cause.after is not None and is_result(cause):
        return f"{title}; computed before the graph break: {cause.after.code}"
    return f"{title}{fixed_by(cause)}"


def fixed_by(cause: Cause) -> str:
    """Return the end of a title that names the statement which fixed a symbolic size or number to one value; else empty."""
    return f"; fixed by: {cause.fixed.code}" if cause.fixed is not None and cause.fixed.code else ""


def _instances(cause: Cause) -> str:
    """Describe how the instances of a class differ: the values of the first attribute, and the names of the others."""
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
    """Return the branch that created a guard on symbolic sizes or numbers, as in the source; empty for other statements."""
    match = re.match(r"(?:if|elif|while)\b.*?:(?=\s|$)", reason.code) if reason.kind == "shape" else None
    return match[0] if match else ""


def _with_partners(advice: str, cause: Cause) -> str:
    """Return advice to mark one size with the other sizes that change; `mark_dynamic` raises if they depend on each other."""
    match = SIZE.match(cause.first.source)
    if match is None or not advice.startswith("mark_dynamic"):
        return advice
    own = Mark(match["tensor"], int(match["dim"]))
    others = [mark for mark in dict.fromkeys((*cause.together, *cause.varying)) if mark != own]
    if not others:
        return advice
    marks = [f"maybe_{fixes.mark_text(mark)}" for mark in others]
    more = [*marks[:2], f"{len(marks) - 2} more"] if len(marks) > 2 else marks
    first, _, rest = advice.partition(")")
    return f"maybe_{first}) with {' and '.join(more)}{rest}"


def subject_of(reason: Reason) -> str:
    """Return the name of the guarded value as the user writes it, such as `x.size(1)` or `grad mode`."""
    if is_grad_mode(reason):
        return "grad mode"
    if reason.kind == "global_state":
        return "global torch state" if " " in reason.source else reason.source
    if match := SIZE.match(reason.source):
        tensor = spoken(match["tensor"])
        return f"{tensor}.shape[{match['dim']}]" if is_array(reason.source) else f"{tensor}.size({match['dim']})"
    if reason.kind == "stride":
        return re.sub(r"stride\(\)\[(\d+)\]$", r"stride(\1)", spoken(reason.source))
    source = spoken(reason.source)
    if reason.kind == "alias":
        source = ", ".join(re.findall(r"[\"']([^\"']+)[\"']", source)) or source
    if is_device(reason):
        return f"{source}.device"
    if source.endswith("._modules"):
        return f"the modules of {source.removesuffix('._modules')}"
    names = {
        "dtype": f"{source}.dtype",
        "device": f"{source}.device",
        "rank": f"{source}.dim()",
        "type": f"type of {source}",
        "requires_grad": f"{source}.requires_grad",
        "length": f"len({source})",
        "keys": f"keys of {source}",
    }
    return names.get(reason.kind, source)


def changes(cause: Cause) -> str:
    """Describe how the guarded value changed over the recompiles of a cause: `7, then 8, 9, … 14`."""
    reason = cause.first
    if is_grad_mode(reason):
        return _grad_change(reason)
    if reason.kind == "object" and not MEMBER_OF_ENUM.match(reason.got or ""):
        last = cause.last.got
        return f"is another object: {last}" if last else "is another object"
    if reason.kind == "function":
        last = cause.last.got
        return f"is another function: {value_of(reason, last)}" if last else "is another function"
    later = list(dict.fromkeys(value_of(reason, recompile.reasons[0].got) for recompile in cause.recompiles))
    later = [value for value in later if value != "unknown"]
    if not later:
        return "changed" if reason.expected is None else f"is no longer {reason.expected}"
    shown = later if len(later) <= 3 else [*later[:2], f"… {later[-1]}"]
    expected = value_of(reason, reason.expected)
    return f"{expected}, then {', '.join(shown)}".strip()


_CLASS = re.compile(r"<class '(?:[\w.]+\.)?(?P<name>[\w<>]+)'>(?: \(HINT.*\))?")


def value_of(reason: Reason, value: str | None, unknown: str = "unknown") -> str:
    """Return the text of a guarded value; for global torch state without its name, which the title already contains."""
    if value is None:
        return unknown
    if reason.kind == "global_state":
        return value.removeprefix(f"{reason.source} ")
    if reason.kind in ("type", "object", "function"):
        return _CLASS.sub(lambda match: match["name"], value)
    if is_device(reason):
        return ", ".join(re.findall(DEVICES, value)[:1]).lower() or value
    if reason.kind == "shape":
        return re.sub(r"\.size\(\)\[(\d+)\]", r".size(\1)", spoken(value.partition("  #")[0]))
    return value


def _grad_change(reason: Reason) -> str:
    if reason.kind == "tensor":
        return f"differs: of the tensors passed as {spoken(reason.source)}, only one was created under inference_mode"
    words = {"grad_mode True": "enabled", "grad_mode False": "disabled"}
    values = [words.get((value or "").partition(",")[0], "unknown") for value in (reason.expected, reason.got)]
    return f"{values[0]}, then {values[1]}"


def evidence(cause: Cause) -> tuple[str, ...]:
    """Return the failed guards of a cause as text: for each recompile the first one, and up to two of other cache entries."""
    lines: list[str] = [f"guarded by: {cause.first.code}"] if cause.first.code else []
    for recompile in cause.recompiles:
        first, *further = recompile.reasons
        lines.append(f"{recompile.id}: {first.text} (was {first.expected}, now {first.got})")
        lines += [f"{recompile.id}: also against {reason.against}: {reason.text}" for reason in further[:2]]
    return tuple(lines)


def _subject(reason: Reason) -> str:
    """Return the subject of a `CauseKey`: the guard's source, or for a guard on symbolic shapes the line that created it."""
    if differs_by_instance(reason):
        return f"instances of {reason.other_instance}"
    return reason.source if reason.kind != "shape" else str(reason.location)
