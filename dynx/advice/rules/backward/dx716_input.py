"""Rule DX716: a captured backward pass is compiled again for another size or memory format of its inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dynx.advice.rule import RunRule
from dynx.records.finding import Finding
from dynx.records.location import Location
from dynx.records.recompile import Reason, Recompile
from dynx.records.record import frame_id
from dynx.records.run_records import RunRecords

_WHAT = {"size": "a size", "stride": "a stride", "rank": "the number of dims", "dtype": "a dtype", "value": "a number"}
_WHO = {"captured": "a captured backward pass", "code of torch": "code of torch that a captured backward pass calls"}
_OF_HOOKS = (
    "one compile for each is expected: a function that calls the hooks of several tensors, or updates them, gets each of them"
)
_FORMAT = "one compile for each memory format is expected; to avoid it, use the same one in every pass"
_ANY = "one compile for each is expected; to avoid it, pass the same in every pass"


def _find(run: RunRecords) -> Iterator[Finding]:
    groups: dict[tuple[str, str, Location], list[Recompile]] = {}
    # of which rule DX714 has a finding: another class of an `autograd.Function` compiles its backward again, too
    classes = {(each.generation, each.id) for each in run.backward_captures if each.reason.kind == "function"}
    for recompile in run.recompiles:
        reason = recompile.reasons[0] if recompile.reasons else None
        is_of_class = (recompile.generation, recompile.id.partition("/")[0]) in classes
        if reason is not None and reason.holder in _WHO and not is_of_class:
            groups.setdefault((reason.holder, reason.kind, reason.location or recompile.location), []).append(recompile)
    for (holder, kind, location), group in groups.items():
        reasons = [recompile.reasons[0] for recompile in group]
        line = _specialized(run, group[-1], location) if kind == "size" else None
        yield Finding(
            RULE.id,
            f"{_WHO[holder]} is compiled again: {_change(reasons)}",
            line or location,
            sum(recompile.seconds for recompile in group),
            tuple(f"{recompile.id}: {recompile.reasons[0].text}" for recompile in group),
            _advice(kind, group, line) if holder == "captured" else _OF_HOOKS,
            len(group),
            location if line is not None else None,
        )


def _change(reasons: Sequence[Reason]) -> str:
    """Return what changed, with its values. torch passes sizes and indices of nodes in `sizes`: those above zero as dynamic."""
    first = reasons[0]
    what, before, after = _WHAT.get(first.kind, "an input"), first.expected, [reason.got or "another" for reason in reasons]
    if first.source.startswith("sizes["):
        what, before, after = "a size or an index", _number(before or "another"), [_number(each) for each in after]
    return f"{what} {before}, then {', '.join(dict.fromkeys(after))}"


def _number(value: str) -> str:
    """Return a number that torch passes: one above 0 in the sizes of a tensor, so that it may be dynamic; others as int."""
    return "above 0" if "Tensor" in value else "0 or below" if value == str(int) else value


def _specialized(run: RunRecords, last: Recompile, backward: Location) -> Location | None:
    """Return the line of a hook that needed the exact size when the pass was last compiled, or None."""
    lines = [each.location for each in run.specialized if (each.generation, each.id) == last.key and each.location is not None]
    return next((line for line in lines if line.own != backward.own), None)


def _advice(kind: str, group: Sequence[Recompile], line: Location | None) -> str:
    if kind == "stride":
        return _FORMAT
    if kind != "size":
        return _ANY
    if line is not None:
        return "this line needs the exact size: one compile for each size is expected; to avoid it, compute with the size only"
    frames = {frame_id(recompile.id) for recompile in group}
    if len(group) > len(frames):
        return _ANY
    return "one more compile is expected: torch makes a size dynamic when it changes"


RULE = RunRule(
    id="DX716",
    title="a captured backward pass is compiled again for another size",
    find=_find,
    is_merged=False,
)
