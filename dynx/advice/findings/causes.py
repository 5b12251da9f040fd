"""Group recompiles by what causes them: the function, the advice rule, and the value that changed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from dynx.advice.facts.names import IN_CONTAINER_OF_OBJECT, LOCAL, UNNAMED, is_array
from dynx.advice.facts.reasons import differs_by_instance
from dynx.advice.findings.resumed import Part, frame_of, parts_of
from dynx.advice.rule import Cause, FrameKey, RecompileRule
from dynx.advice.rules import advice_of, rule_of_break, rule_of_reason
from dynx.records.fix import Mark
from dynx.records.graph_break import GraphBreak
from dynx.records.location import Location
from dynx.records.observed import BecameDynamic, Specialized
from dynx.records.recompile import Reason, Recompile
from dynx.records.run_records import RunRecords
from dynx.records.what_if import WhatIf

# recompiles, and the rule that applies to them, by function, rule and changed value
_Groups = dict[tuple[FrameKey, str, str], tuple[RecompileRule, list[Recompile]]]


def causes(run: RunRecords) -> tuple[Cause, ...]:
    """Return a `Cause` for each group of recompiles with the same function, advice rule and changed value.

    Recompiles to which no rule applies are omitted.
    """
    compiles, breaks = run.compiles, run.graph_breaks
    dynamic = tuple(change for change in run.dynamic if change.profile is None)
    parts = parts_of(compiles, breaks)
    fixed = {(record.generation, record.id, LOCAL.sub(r"\1", record.source)): record for record in run.specialized}
    callers = {compile.key: compile.called_from for compile in compiles}
    static = {compile.key for compile in compiles if not compile.automatic_dynamic}
    first_calls = {frame_of(compile.key): compile.called_from for compile in reversed(compiles)}
    varying = _varying_sizes(dynamic)
    split = {part.whole for part in parts.values()}
    has_captures = bool(run.backward_captures)
    options = [each for each in run.what_ifs if each.fix.kind == "option"]
    groups: _Groups = {}
    ended = {compile.key for compile in run.ended}  # of which rule DX303 has a finding
    for recompile in run.recompiles:
        if recompile.key in ended or (recompile.reasons and recompile.reasons[0].holder in ("captured", "code of torch")):
            continue
        rule = rule_of_reason(recompile.reasons[0]) if recompile.reasons else None
        if rule is not None:
            key = frame_of(recompile.key), rule.id, _subject(recompile.reasons[0])
            groups.setdefault(key, (rule, []))[1].append(recompile)
    hidden = _hidden(run, groups, ended)
    found = []
    for key, (rule, group) in (groups | hidden).items():
        frame, *_ = key
        whole, after = parts.get(frame, Part(frame, None))
        called_from = callers.get(group[0].key)
        found.append(
            Cause(
                rule,
                tuple(group),
                _marks_of_equal_sizes(group[0], dynamic),
                varying.get(frame, ()),
                called_from,
                _fixed_by(group, fixed),
                after,
                whole,
                has_captures or whole in split,
                _break_at(called_from, breaks),
                first_call=first_calls.get(whole),
                advice_after=_advice_on(after),
                is_static=all(recompile.key in static for recompile in group),
                hidden_by=group[0].reasons[1] if key in hidden else None,
                what_ifs=tuple(each for each in run.what_ifs if (each.generation, each.frame, each.rule) == (*frame, rule.id)),
                elsewhere=tuple(each for each in options if _frame(each) != frame and _whole(each, parts) == whole),
            )
        )
    return tuple(found)


def _hidden(run: RunRecords, groups: _Groups, ended: Collection[tuple[int, str]]) -> _Groups:
    """Return the causes that never come first: in all their recompiles, another guard of the same cache entry failed too.

    Their recompiles are those of other causes, and cost nothing here. Numbers that torch made dynamic are left out, and all but
    one of the values that a graph break leaves on the stack, such as those of the list of `x.tolist()`.
    """
    known = {(frame, text) for frame, _, source in groups for text in (source, _attribute(source), _on_stack(source))}
    known |= {(frame_of((each.generation, each.id)), LOCAL.sub(r"\1", each.source)) for each in run.dynamic}
    found: _Groups = {}
    for recompile in run.recompiles:
        is_left_out = not recompile.reasons or recompile.key in ended or recompile.id.startswith("!")
        for reason in () if is_left_out else recompile.further:
            rule, frame = rule_of_reason(reason), frame_of(recompile.key)
            names = {_subject(reason), _attribute(reason.source), _on_stack(reason.source)}
            if rule is not None and not {(frame, name) for name in names} & known:
                own = replace(recompile, reasons=(reason, *recompile.reasons), seconds=0.0)
                found.setdefault((frame, rule.id, _subject(reason)), (rule, []))[1].append(own)
    return found


def _frame(what_if: WhatIf) -> FrameKey:
    return FrameKey(what_if.generation, what_if.frame)


def _whole(what_if: WhatIf, parts: Mapping[FrameKey, Part]) -> FrameKey:
    return parts.get(_frame(what_if), Part(_frame(what_if), None)).whole


def _attribute(source: str) -> str:
    """Return the attribute that a source ends in, such as ".training", which may change on several objects at once."""
    _, dot, name = source.rpartition(".")
    return f"{dot}{name}"


def _on_stack(source: str) -> str:
    """Return the value on Python's stack at a graph break that a source begins with; the source, if it has a name."""
    value = UNNAMED.match(source)
    return value[0] if value is not None else source


def _advice_on(graph_break: GraphBreak | None) -> str:
    rule = rule_of_break(graph_break) if graph_break is not None else None
    return str(advice_of(rule, graph_break)) if rule is not None and graph_break is not None else ""


def _fixed_by(group: list[Recompile], fixed: dict[tuple[int, str, str], Specialized]) -> Specialized | None:
    """Return the line that specialized the changed value in the last successful recompile of a group, or None.

    Earlier recompiles do not count: there, a line may have specialized the value only by comparing it with a static size.
    """
    last = next((recompile for recompile in reversed(group) if recompile.outcome == "compiled"), group[-1])
    return fixed.get((last.generation, last.id, last.reasons[0].source))


def _break_at(call: Location | None, breaks: tuple[GraphBreak, ...]) -> GraphBreak | None:
    """Return the graph break that makes torch compile the function called at `call` on its own; None if there is none."""
    if call is None:
        return None
    line = call.own.file, call.own.line
    return next((found for found in breaks if line in [(entry.own.file, entry.own.line) for entry in found.chain]), None)


def _marks_of_equal_sizes(recompile: Recompile, dynamic: tuple[BecameDynamic, ...]) -> tuple[Mark, ...]:
    """Return marks (tensor and dim) for the other dims whose size changed from and to the same values as the guarded size.

    For example, several tensors have the batch size: marking only one of them raises ConstraintViolationError.
    """
    reason = recompile.reasons[0]
    if reason.kind != "size":
        return ()
    change = *recompile.key, reason.expected, reason.got
    marks = (_mark(each) for each in dynamic if (each.generation, each.id, each.first, each.second) == change)
    return tuple(mark for mark in marks if mark is not None and f"{mark.source}.size()[{mark.dim}]" != reason.source)


def _mark(change: BecameDynamic) -> Mark | None:
    """Return the tensor and dim of a size that became dynamic; None if the user cannot mark it, such as in an item of *args.

    A tensor in a container of an object, as in a cache with layers, may be there only since the first call.
    """
    tensor = LOCAL.sub(r"\1", change.source)
    is_passed = not (
        is_array(tensor) or tensor.startswith("args[") or "._base" in tensor or IN_CONTAINER_OF_OBJECT.search(tensor)
    )
    if not change.dim.startswith("size ") or not is_passed:
        return None
    return Mark(tensor, int(change.dim.removeprefix("size ")))


def _varying_sizes(dynamic: Iterable[BecameDynamic]) -> Mapping[FrameKey, tuple[Mark, ...]]:
    """Return for each function the tensors and dims whose size became dynamic in any of its recompiles."""
    found: dict[FrameKey, dict[Mark, None]] = {}
    for change in dynamic:
        if (mark := _mark(change)) is not None:
            found.setdefault(frame_of((change.generation, change.id)), {})[mark] = None
    return {frame: tuple(marks) for frame, marks in found.items()}


def _subject(reason: Reason) -> str:
    """Return the text by which recompiles are grouped: the source of the guarded value that changed.

    For a guard on symbolic shapes, return the line that created the guard; for instances that differ, their class.
    """
    if differs_by_instance(reason):
        return f"instances of {reason.other_instance}"
    return reason.source if reason.kind != "shape" else str(reason.location)
