"""Advice rules DX1xx: causes of recompiles, and how to avoid them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

from dynx.advice.names import LOCAL, SIZE, spoken
from dynx.advice.rule import Cause, RecompileRule, RuleAtLine, first_match
from dynx.advice.sizes import LOOP, size_advice
from dynx.records.compile import Compile, GaveUp
from dynx.records.finding import Finding
from dynx.records.observed import BecameDynamic, Specialized
from dynx.records.recompile import GuardKind, Reason, Recompile

_NUMBER = re.compile(r"-?\d")
_INT = re.compile(r"-?\d+$")
_ITEM = ".item()"
_CONTAINER: tuple[GuardKind, ...] = ("length", "keys")
_AUTOGRAD_KEYS = re.compile(r"\b(?:ADInplaceOrView|Autograd\w*)(?:, )?")


def _kind(*kinds: str, holder: str | None = None) -> Callable[[Reason], bool]:
    return lambda reason: reason.kind in kinds and (holder is None or reason.holder == holder)


def _grad_mode(reason: Reason) -> bool:
    if reason.kind == "global_state":
        return "grad_mode" in reason.source.split()
    # an inference tensor has the dispatch keys of a normal tensor without those of autograd
    keys = [_AUTOGRAD_KEYS.sub("", value or "").replace(", )", ")") for value in (reason.expected, reason.got)]
    return reason.kind == "tensor" and "dispatch key" in reason.text and keys[0] == keys[1]


def _module_int(reason: Reason) -> bool:
    return reason.kind == "value" and reason.holder == "module" and bool(_INT.match(reason.expected or ""))


def _is_size(reason: Reason) -> bool:
    return reason.kind in ("size", "shape") and ".size()" in reason.source


def _requires_grad_advice(cause: Cause) -> str:
    source = cause.first.source
    if "_parameters[" in source:
        return (
            "one recompile per setting is expected; to avoid it, set requires_grad once, before the first call, "
            "and choose in the optimizer what to train"
        )
    return f"one recompile per setting is expected; to avoid it, {spoken(source)}.detach() where no gradient is needed"


def _container_advice(cause: Cause) -> str:
    reason = cause.first
    if reason.holder == "optimizer":
        return "one recompile is expected: the first step creates the optimizer's state; to avoid it, call step() uncompiled"
    source = spoken(reason.source)
    if reason.kind == "keys" and reason.holder == "argument":
        return f"pass the same keys in {source} on every call, with a default value where there is none"
    if reason.kind == "keys":
        return f"fill {source} with all its keys before the first call, such as in __init__"
    if reason.holder == "argument":
        return f"pass {source} as one tensor, padded or with mark_dynamic(it, 0)"
    return f"allocate {source} at its full length before the first call, or keep the data in one tensor; or change it outside"


def _value_advice(cause: Cause) -> str:
    reason = cause.first
    if reason.kind == "shape":
        return "one recompile per side of the branch is expected; to avoid it, branch outside the compiled function"
    source = spoken(reason.source)
    if source.endswith(_ITEM):
        return f"index with {source.removesuffix(_ITEM)}.view(1): a tensor without dims becomes a Python number there"
    if _NUMBER.match(reason.expected or ""):
        if cause.fixed is not None:  # torch made it dynamic, but the code needed its value
            return f"this line needs the exact value of {source}: {_needed(cause.fixed)}"
        if len(cause.recompiles) > 1:
            return (
                f"pass {source} as a tensor, and select with torch.where instead of if; or decide outside the compiled function"
            )
        return f"pass {source} as a tensor, or compile with dynamic=True"
    if "None" in (reason.expected, reason.got):
        return f"pass {source} in every call, such as a tensor of zeros or ones instead of None; or expect one recompile"
    return _PER_VALUE


_PER_VALUE = (
    "one recompile per value is expected; to avoid it, pass the same value on every call, "
    "or branch on it outside the compiled function"
)


def _needed(fixed: Specialized) -> str:
    if LOOP.search(fixed.code):
        return "loop outside the compiled function"
    return "index with a 1-element tensor, or compute it outside the compiled function and pass a tensor"


def _object_advice(cause: Cause) -> str:
    if _MEMBER_OF_ENUM.match(cause.last.got or ""):
        return _PER_VALUE
    return "one recompile per object is expected; to avoid it, pass the same object"


_MEMBER_OF_ENUM = re.compile(r"[A-Za-z_]\w*(?:\.\w+)+$")


def _instances_advice(cause: Cause) -> str:
    name, count = cause.first.other_instance, len(cause.recompiles) + 1
    return (
        f"compile the whole model that contains each {name}; or compile each with isolate_recompiles=True; "
        f"or raise torch._dynamo.config.recompile_limit above {count}"
    )


def _tensor_of(reason: Reason) -> str:
    """Return the name of a tensor of which a size or stride changed."""
    return spoken(re.sub(r"\.(?:size|stride)\(\)\[\d+\]$", "", reason.source))


def _differs_by_instance(reason: Reason) -> bool:
    is_its_own = reason.source.startswith("self.") and reason.kind in (
        "value",
        "none",
        "length",
        "keys",
        "object",
        "function",
        "type",
    )
    return reason.other_instance is not None and is_its_own


def _global_advice(cause: Cause) -> str:
    if _NUMBER.match(cause.first.expected or ""):
        return "pass it as an argument, or make it a tensor"
    return _PER_VALUE


def _always(text: str) -> Callable[[Cause], str]:
    return lambda cause: text.format(source=spoken(cause.first.source), name=cause.first.source.rpartition(".")[2])


# The first rule that applies is used: more specific rules come first.
RULES: tuple[RecompileRule, ...] = (
    RecompileRule(
        "DX113",
        "an optimizer setting changes inside the compiled step",
        lambda r: r.holder == "optimizer" and r.kind not in _CONTAINER,
        _always("call step() uncompiled, or make {name} a tensor"),
    ),
    RecompileRule(
        "DX115",
        "instances of one class share its compiled code",
        _differs_by_instance,
        _instances_advice,
    ),
    RecompileRule(
        "DX107",
        "train and eval mode alternate",
        lambda r: r.source.endswith(".training") and r.kind in ("value", "object", "other"),
        _always("one recompile per mode is expected; to avoid it, evaluate with the uncompiled module"),
    ),
    RecompileRule(
        "DX108",
        "grad mode differs between calls",
        _grad_mode,
        _always(
            "one recompile per mode is expected; to avoid it, use one of no_grad, inference_mode and neither for every call, "
            "also to warm up and in other threads"
        ),
    ),
    RecompileRule(
        "DX109",
        "global torch state differs between calls",
        _kind("global_state"),
        _always("set it once, before the first call"),
    ),
    RecompileRule(
        "DX112",
        "a new backend object on every compile",
        _kind("backend"),
        _always("create the backend once and pass the same object"),
    ),
    RecompileRule("DX102", "a tensor's size changes", _is_size, size_advice),
    RecompileRule(
        "DX105", "a tensor's dtype changes", _kind("dtype"), _always("convert {source} to one dtype before the call")
    ),
    RecompileRule(
        "DX106",
        "a tensor's requires_grad changes",
        _kind("requires_grad"),
        _requires_grad_advice,
    ),
    RecompileRule(
        "DX104",
        "a container's length changes",
        _kind(*_CONTAINER),
        _container_advice,
    ),
    RecompileRule(
        "DX101",
        "an int on a module changes",
        _module_int,
        _always("make {source} a tensor buffer, updated in place"),
    ),
    RecompileRule(
        "DX116",
        "two arguments are one tensor in some calls only",
        _kind("alias"),
        _always("pass different tensors on every call: copy one with clone() where it is the same"),
    ),
    RecompileRule(
        "DX117",
        "a tensor's strides change",
        _kind("stride"),
        lambda cause: f"pass {_tensor_of(cause.first)} in one memory format: .contiguous(memory_format=...) before the call",
    ),
    RecompileRule(
        "DX103",
        "a global changes",
        _kind("value", "none", holder="global"),
        _global_advice,
    ),
    RecompileRule(
        "DX111",
        "another function object is called",
        _kind("function"),
        _always("pass the same function; or compile the callbacks, not their caller"),
    ),
    RecompileRule(
        "DX110",
        "an object guarded by identity is replaced",
        _kind("object"),
        _object_advice,
    ),
    RecompileRule("DX114", "a Python value changes", _kind("value", "none", "shape"), _value_advice),
)


class FrameKey(NamedTuple):
    """Key of a compiled frame, unique in a run: frame ids repeat after `torch._dynamo.reset()`, which begins a generation."""

    generation: int
    frame: str  # frame id: "0" of the compile id "0/1"


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
) -> tuple[Cause, ...]:
    """Group recompiles by function, advice rule and changed value; recompiles to which no rule applies are omitted."""
    dynamic = tuple(dynamic)
    fixed = {(record.generation, record.id, LOCAL.sub(r"\1", record.source)): record for record in specialized}
    callers = {compile.key: compile.called_from for compile in compiles}
    groups: dict[CauseKey, list[Recompile]] = {}
    rules: dict[str, RecompileRule] = {rule.id: rule for rule in RULES}
    for recompile in recompiles:
        if recompile.id.startswith("!"):
            continue  # compiled autograd: the changed value is not a variable of the user's code
        rule = first_match(RULES, recompile.reasons[0]) if recompile.reasons else None
        if rule is not None:
            key = CauseKey(frame_of(recompile), rule.id, _subject(recompile.reasons[0]))
            groups.setdefault(key, []).append(recompile)
    return tuple(
        Cause(
            rules[key.rule],
            tuple(group),
            _marks_of_equal_sizes(group[0], dynamic),
            callers.get(group[0].key),
            _fixed_by(group, fixed),
        )
        for key, group in groups.items()
    )


def _fixed_by(group: list[Recompile], fixed: dict[tuple[int, str, str], Specialized]) -> Specialized | None:
    """Return the line that fixed the changed value in its last recompile.

    An earlier one may have fixed it only because torch had not yet made another size symbolic that it is compared with.
    """
    last = next((recompile for recompile in reversed(group) if recompile.outcome == "compiled"), group[-1])
    return fixed.get((last.generation, last.id, last.reasons[0].source))


def frame_of(record: Recompile | GaveUp) -> FrameKey:
    """Return the key of the frame that a record is about: frame "0" for the compile id "0/1"."""
    return FrameKey(record.generation, record.id.rpartition("/")[0])


def _marks_of_equal_sizes(recompile: Recompile, dynamic: tuple[BecameDynamic, ...]) -> tuple[str, ...]:
    """Return `mark_dynamic` calls for the other dimensions that changed from and to the same sizes in this recompile.

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
    sizes = [change for change in alike if change.dim.startswith("size ")]
    dimensions = ((LOCAL.sub(r"\1", change.source), change.dim.removeprefix("size ")) for change in sizes)
    return tuple(
        f"mark_dynamic({spoken(tensor)}, {dim})" for tensor, dim in dimensions if f"{tensor}.size()[{dim}]" != reason.source
    )


def find_all(causes: Iterable[Cause]) -> tuple[Finding, ...]:
    """Return one finding for each cause of recompiles; if one change recompiles several functions, their findings are merged.

    For example, a graph break splits a function, and each resume function recompiles when the size of a common input changes.
    """
    merged: dict[tuple[RuleAtLine, str | None, str | None], Finding] = {}
    for cause in causes:
        finding = find(cause)
        own = finding.location.own
        key = (RuleAtLine(finding.rule, own.file, own.line), cause.first.expected, cause.first.got)
        merged[key] = _join(merged[key], finding) if key in merged else finding
    return tuple(merged.values())


def _join(a: Finding, b: Finding) -> Finding:
    """Merge two findings: add costs and counts, and prefer title, location and advice of a finding in the user's own code."""
    kept, merged = (b, a) if a.location.library is not None and b.location.library is None else (a, b)
    return replace(kept, seconds=a.seconds + b.seconds, count=a.count + b.count, evidence=kept.evidence + merged.evidence)


def find(cause: Cause) -> Finding:
    """Return the finding for one cause of recompiles: the changed value, the seconds spent recompiling, and the advice."""
    reason = cause.first
    return Finding(
        cause.rule.id,
        _title(cause),
        (cause.fixed.location if cause.fixed is not None else None) or reason.location or cause.recompiles[0].location,
        sum(recompile.seconds for recompile in cause.recompiles),
        evidence(cause),
        _with_partners(cause.rule.advice(cause), cause.together),
        len(cause.recompiles),
        cause.called_from.own if cause.called_from is not None and reason.holder == "argument" else None,
    )


def _title(cause: Cause) -> str:
    title = f"{subject_of(cause.first)} {changes(cause)}"
    if cause.rule.id == "DX115":
        return f"{len(cause.recompiles) + 1} instances of {cause.first.other_instance} share its compiled code: {title}"
    return f"{title}; fixed by: {cause.fixed.code}" if cause.fixed is not None and cause.fixed.code else title


def _with_partners(advice: str, together: tuple[str, ...]) -> str:
    if not together or not advice.startswith("mark_dynamic"):
        return advice
    first, _, rest = advice.partition(")")
    more = [*together[:2], f"{len(together) - 2} more"] if len(together) > 2 else list(together)
    return f"{first}) with {' and '.join(more)}{rest}"


def subject_of(reason: Reason) -> str:
    """Return the name of the guarded value as the user writes it, such as `x.size(1)` or `grad mode`."""
    if _grad_mode(reason):
        return "grad mode"
    if reason.kind == "global_state":
        return "global torch state" if " " in reason.source else reason.source
    if match := SIZE.match(reason.source):
        return f"{spoken(match['tensor'])}.size({match['dim']})"
    if reason.kind == "stride":
        return re.sub(r"stride\(\)\[(\d+)\]$", r"stride(\1)", spoken(reason.source))
    source = spoken(reason.source)
    names = {
        "dtype": f"{source}.dtype",
        "requires_grad": f"{source}.requires_grad",
        "length": f"len({source})",
        "keys": f"keys of {source}",
    }
    return names.get(reason.kind, source)


def changes(cause: Cause) -> str:
    """Describe how the guarded value changed over the recompiles of a cause: `7, then 8, 9, … 14`."""
    reason = cause.first
    if _grad_mode(reason):
        return _grad_change(reason)
    if reason.kind == "object" and not _MEMBER_OF_ENUM.match(reason.got or ""):
        last = cause.last.got
        return f"is another object: {last}" if last else "is another object"
    if reason.kind == "function":
        last = cause.last.got
        return f"is another function: {last}" if last else "is another function"
    later = list(dict.fromkeys(_value(reason, recompile.reasons[0].got) for recompile in cause.recompiles))
    later = [value for value in later if value != "unknown"]
    if not later:
        return "changed" if reason.expected is None else f"is no longer {reason.expected}"
    shown = later if len(later) <= 3 else [*later[:2], f"… {later[-1]}"]
    expected = _value(reason, reason.expected)
    return f"{expected}, then {', '.join(shown)}".strip()


def _value(reason: Reason, value: str | None) -> str:
    """Return the text of a guarded value; for global torch state without its name, which the title already contains."""
    return "unknown" if value is None else value.removeprefix(f"{reason.source} ") if reason.kind == "global_state" else value


def _grad_change(reason: Reason) -> str:
    if reason.kind == "tensor":
        return f"differs: of the tensors passed as {spoken(reason.source)}, only one was created under inference_mode"
    words = {"grad_mode True": "enabled", "grad_mode False": "disabled"}
    values = [words.get((value or "").partition(",")[0], "unknown") for value in (reason.expected, reason.got)]
    return f"{values[0]}, then {values[1]}"


def evidence(cause: Cause) -> tuple[str, ...]:
    """Return the failed guards of a cause as text: for each recompile the first one, and up to two of other cache entries."""
    lines: list[str] = []
    for recompile in cause.recompiles:
        first, *further = recompile.reasons
        lines.append(f"{recompile.id}: {first.text} (was {first.expected}, now {first.got})")
        lines += [f"{recompile.id}: also against {reason.against}: {reason.text}" for reason in further[:2]]
    return tuple(lines)


def _subject(reason: Reason) -> str:
    """Return the subject of a `CauseKey`: the guard's source, or for a guard on symbolic shapes the line that created it."""
    if _differs_by_instance(reason):
        return f"instances of {reason.other_instance}"
    return reason.source if reason.kind != "shape" else str(reason.location)
