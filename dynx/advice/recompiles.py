"""Advice rules DX1xx: causes of recompiles, and how to avoid them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

from dynx.advice.rule import Cause, RecompileRule, RuleAtLine, first_match
from dynx.records.compile import GaveUp
from dynx.records.finding import Finding
from dynx.records.observed import BecameDynamic
from dynx.records.recompile import GuardKind, Reason, Recompile

_LOCAL = re.compile(r"\bL\['(\w+)'\]")
_MEMBER = re.compile(r"\._(?:modules|parameters|buffers)\['([^']+)'\]")
_IMPORTED = re.compile(r"\bG\['__import_(\w+)'\]")
_NAMED = re.compile(r"\b(?:G|kwargs)\['(\w+)'\]")
_ARGS = re.compile(r"^args\[(\d+)\]$")
_NUMBER = re.compile(r"-?\d")
_INT = re.compile(r"-?\d+$")
_SIZE = re.compile(r"(?P<tensor>.*)\.size\(\)\[(?P<dim>\d+)\]$")
_STATE_KEY = re.compile(r"\[list\(dict\.keys\([^()]*\)\)\[\d+\]\]")
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


def _size_advice(cause: Cause) -> str:
    reason = cause.first
    match = _SIZE.match(reason.source)
    if reason.kind == "shape" or match is None:
        return "one recompile per side of the branch is expected; to avoid it, branch outside the compiled function"
    mark = f"mark_dynamic({spoken(match['tensor'])}, {match['dim']})"
    if "1" in (reason.expected, reason.got):
        if len(cause.recompiles) > 1:
            return f"{mark}, and warm up with 2 or more: size 1 always compiles on its own"
        return "size 1 always compiles on its own: warm up with 2 or more"
    if "_parameters[" in match["tensor"]:
        return "compile each module separately: the sizes of its parameters do not change"
    return f"{mark}, or pad to one size"


def _requires_grad_advice(cause: Cause) -> str:
    source = cause.first.source
    if "_parameters[" in source:
        return "one recompile per setting is expected; to avoid it, freeze the parameter before the first call"
    return f"one recompile per setting is expected; to avoid it, {spoken(source)}.detach() where no gradient is needed"


def _container_advice(cause: Cause) -> str:
    reason = cause.first
    if reason.holder == "optimizer":
        return "one recompile is expected: the first step creates the optimizer's state; to avoid it, call step() uncompiled"
    if reason.kind == "keys":
        return f"use the same keys in {spoken(reason.source)} on every call"
    if reason.holder == "argument":
        return f"pass {spoken(reason.source)} as one tensor, padded or with mark_dynamic(it, 0)"
    return f"change {spoken(reason.source)} outside the compiled function, or keep it at one length"


def _value_advice(cause: Cause) -> str:
    reason = cause.first
    if reason.kind == "shape":
        return "one recompile per side of the branch is expected; to avoid it, branch outside the compiled function"
    source = spoken(reason.source)
    if source.endswith(_ITEM):
        return f"index with {source.removesuffix(_ITEM)}.view(1): a tensor without dims becomes a Python number there"
    if _NUMBER.match(reason.expected or ""):
        if len(cause.recompiles) > 1:  # torch made it dynamic, but the code needed its value
            return f"the code needs the exact value of {source}, as an index or a length: index a tensor by a 1-element tensor"
        return f"pass {source} as a tensor, or compile with dynamic=True"
    return "one recompile per value is expected; to avoid it, branch on the value outside the compiled function"


def _global_advice(cause: Cause) -> str:
    if _NUMBER.match(cause.first.expected or ""):
        return "pass it as an argument, or make it a tensor"
    return "one recompile per value is expected; to avoid it, branch on the value outside the compiled function"


def spoken(source: str) -> str:
    """Return a guard source as the user writes it: `self.blocks[0]` for `self._modules['blocks']._modules['0']`.

    A value in the `*args` of a wrapper, or on the value stack at a graph break, has no name: it is described in words.
    """
    source = _LOCAL.sub(r"\1", source)
    if source.startswith("___stack"):
        return "a value from before the graph break"
    source = _ARGS.sub(lambda match: f"<positional argument {int(match[1]) + 1}>", source)
    source = _MEMBER.sub(lambda match: f"[{match[1]}]" if match[1].isdigit() else f".{match[1]}", source)
    source = _STATE_KEY.sub("[…]", source)
    source = _IMPORTED.sub(lambda match: match[1].replace("_dot_", "."), source)
    return _NAMED.sub(r"\1", source)


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
        "DX107",
        "train and eval mode alternate",
        lambda r: r.source.endswith(".training") and r.kind in ("value", "object", "other"),
        _always("one recompile per mode is expected; to avoid it, evaluate with the uncompiled module"),
    ),
    RecompileRule(
        "DX108",
        "grad mode differs between calls",
        _grad_mode,
        _always("one recompile per mode is expected; to avoid it, use one mode for every call, also to warm up"),
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
    RecompileRule("DX102", "a tensor's size changes", _is_size, _size_advice),
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
        _always("one recompile per object is expected; to avoid it, pass the same object"),
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


def causes(recompiles: Iterable[Recompile], dynamic: Iterable[BecameDynamic] = ()) -> tuple[Cause, ...]:
    """Group recompiles by function, advice rule and changed value; recompiles to which no rule applies are omitted."""
    dynamic = tuple(dynamic)
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
        Cause(rules[key.rule], tuple(group), _marks_of_equal_sizes(group[0], dynamic)) for key, group in groups.items()
    )


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
    dimensions = ((_LOCAL.sub(r"\1", change.source), change.dim.removeprefix("size ")) for change in sizes)
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
        f"{subject_of(reason)} {changes(cause)}",
        reason.location or cause.recompiles[0].location,
        sum(recompile.seconds for recompile in cause.recompiles),
        evidence(cause),
        _with_partners(cause.rule.advice(cause), cause.together),
        len(cause.recompiles),
    )


def _with_partners(advice: str, together: tuple[str, ...]) -> str:
    if not together or not advice.startswith("mark_dynamic"):
        return advice
    first, _, rest = advice.partition("), ")
    more = [*together[:2], f"{len(together) - 2} more"] if len(together) > 2 else list(together)
    return f"{first}) with {' and '.join(more)}, {rest}"


def subject_of(reason: Reason) -> str:
    """Return the name of the guarded value as the user writes it, such as `x.size(1)` or `grad mode`."""
    if _grad_mode(reason):
        return "grad mode"
    if reason.kind == "global_state":
        return "global torch state" if " " in reason.source else reason.source
    if match := _SIZE.match(reason.source):
        return f"{spoken(match['tensor'])}.size({match['dim']})"
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
    if reason.kind == "object":
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
        return "differs: only one of the tensors was created under inference_mode"
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
    return reason.source if reason.kind != "shape" else str(reason.location)
