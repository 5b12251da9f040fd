"""DX1xx: why a function was compiled again, and what keeps it compiled once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace

from dynx.advice.rule import Cause, RecompileRule, first_match
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
    # an inference tensor has all dispatch keys of a normal one but those of autograd
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
        return "expected once per side of the branch; else branch outside"
    mark = f"mark_dynamic({spoken(match['tensor'])}, {match['dim']})"
    if "1" in (reason.expected, reason.got):
        if len(cause.recompiles) > 1:
            return f"{mark}, and warm up with 2 or more: size 1 always compiles on its own"
        return "size 1 always compiles on its own: warm up with 2 or more"
    if "_parameters[" in match["tensor"]:
        return "compile each module on its own: parameters keep their size"
    return f"{mark}, or pad to one size"


def _requires_grad_advice(cause: Cause) -> str:
    source = cause.first.source
    if "_parameters[" in source:
        return "freeze it before the first call; expected once per setting"
    return f"expected once per setting; else {spoken(source)}.detach() where no gradient flows"


def _container_advice(cause: Cause) -> str:
    reason = cause.first
    if reason.holder == "optimizer":
        return "expected once: the first step makes the optimizer's state; else call step() uncompiled"
    if reason.kind == "keys":
        return f"give {spoken(reason.source)} the same keys on every call"
    if reason.holder == "argument":
        return f"pass {spoken(reason.source)} as one tensor, padded or with mark_dynamic(it, 0)"
    return f"change {spoken(reason.source)} outside the compiled function, or keep it at one length"


def _value_advice(cause: Cause) -> str:
    reason = cause.first
    if reason.kind == "shape":
        return "expected once per side of the branch; else branch outside"
    source = spoken(reason.source)
    if source.endswith(_ITEM):
        return f"index with {source.removesuffix(_ITEM)}.view(1): a tensor without dims becomes a Python number there"
    if _NUMBER.match(reason.expected or ""):
        if len(cause.recompiles) > 1:  # torch has tried to make it dynamic, and needed the value all the same
            return f"the code needs {source} exact, as an index or a length: index a tensor by a 1-element tensor"
        return f"pass {source} as a tensor, or compile with dynamic=True"
    return "expected once per value; else choose outside the compiled function"


def _global_advice(cause: Cause) -> str:
    if _NUMBER.match(cause.first.expected or ""):
        return "pass it as an argument, or make it a tensor"
    return "expected once per value; else choose outside the compiled function"


def spoken(source: str) -> str:
    """Write a source for a person: `self._modules['blocks']._modules['0']` is `self.blocks[0]`.

    Behind a wrapper's `*args`, and after a graph break, a value has no name of its own.
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


# the first rule that applies wins: the more specific stand first
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
        _always("expected once per mode; else evaluate with the uncompiled module"),
    ),
    RecompileRule(
        "DX108",
        "grad mode differs between calls",
        _grad_mode,
        _always("expected once per mode; else use one mode for every call, also to warm up"),
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
        _always("make the backend once and pass the same object"),
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
        _always("expected once per object; else pass the same one"),
    ),
    RecompileRule("DX114", "a Python value changes", _kind("value", "none", "shape"), _value_advice),
)


def causes(recompiles: Iterable[Recompile], dynamic: Iterable[BecameDynamic] = ()) -> tuple[Cause, ...]:
    """Group recompiles by function, rule and what changed; those without a rule are left out."""
    dynamic = tuple(dynamic)
    groups: dict[tuple[object, ...], list[Recompile]] = {}
    rules: dict[str, RecompileRule] = {rule.id: rule for rule in RULES}
    for each in recompiles:
        if each.id.startswith("!"):
            continue  # compiled autograd: what changed is no variable of the user
        rule = first_match(RULES, each.reasons[0]) if each.reasons else None
        if rule is not None:
            groups.setdefault((each.generation, _frame(each.id), rule.id, _subject(each.reasons[0])), []).append(each)
    return tuple(Cause(rules[str(key[2])], tuple(group), _together(group[0], dynamic)) for key, group in groups.items())


def _together(recompile: Recompile, dynamic: tuple[BecameDynamic, ...]) -> tuple[str, ...]:
    """Name the other dimensions that changed alike: a batch has the same size everywhere, and marking one is an error."""
    reason = recompile.reasons[0]
    if reason.kind != "size":
        return ()
    alike = [
        each
        for each in dynamic
        if (each.generation, each.id) == recompile.key and (each.first, each.second) == (reason.expected, reason.got)
    ]
    names = ((_LOCAL.sub(r"\1", each.source), each.dim.removeprefix("size ")) for each in alike if each.dim.startswith("size "))
    return tuple(
        f"mark_dynamic({spoken(tensor)}, {dim})" for tensor, dim in names if f"{tensor}.size()[{dim}]" != reason.source
    )


def find_all(causes: Iterable[Cause]) -> tuple[Finding, ...]:
    """Give one finding per cause; causes that are the same change seen from several functions become one.

    A graph break cuts a function into pieces, and each of them recompiles when the size of its common input changes.
    """
    merged: dict[tuple[object, ...], Finding] = {}
    for cause in causes:
        found = find(cause)
        own = found.location.own
        key = (found.rule, own.file, own.line, cause.first.expected, cause.first.got)
        merged[key] = _join(merged[key], found) if key in merged else found
    return tuple(merged.values())


def _join(a: Finding, b: Finding) -> Finding:
    """Keep the words of the one in the user's own code: that is the one the user can act on."""
    speaker, other = (b, a) if a.location.library is not None and b.location.library is None else (a, b)
    return replace(speaker, seconds=a.seconds + b.seconds, count=a.count + b.count, evidence=speaker.evidence + other.evidence)


def find(cause: Cause) -> Finding:
    """Say what changed, what it cost, and what to do about it."""
    reason = cause.first
    return Finding(
        cause.rule.id,
        f"{subject_of(reason)} {changes(cause)}",
        reason.location or cause.recompiles[0].location,
        sum(each.seconds for each in cause.recompiles),
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
    """Name what changed as the user writes it: `x.size(1)`."""
    if _grad_mode(reason):
        return "grad mode"
    if reason.kind == "global_state":
        return "ambient state" if " " in reason.source else reason.source
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
    """Give the values in the order they came: `7, then 8, 9, … 14`."""
    reason = cause.first
    if _grad_mode(reason):
        return _grad_change(reason)
    if reason.kind == "object":
        last = cause.last.got
        return f"is another object: {last}" if last else "is another object"
    if reason.kind == "function":
        last = cause.last.got
        return f"is another function: {last}" if last else "is another function"
    later = list(dict.fromkeys(_value(reason, each.reasons[0].got) for each in cause.recompiles))
    later = [value for value in later if value != "not seen"]
    if not later:
        return "changed" if reason.expected is None else f"is no longer {reason.expected}"
    shown = later if len(later) <= 3 else [*later[:2], f"… {later[-1]}"]
    expected = _value(reason, reason.expected)
    return f"{expected}, then {', '.join(shown)}".strip()


def _value(reason: Reason, value: str | None) -> str:
    """Give a value without the name that the subject has already."""
    return "not seen" if value is None else value.removeprefix(f"{reason.source} ") if reason.kind == "global_state" else value


def _grad_change(reason: Reason) -> str:
    if reason.kind == "tensor":
        return "differs: the tensor was made under inference_mode, or was not"
    words = {"grad_mode True": "enabled", "grad_mode False": "disabled"}
    values = [words.get((value or "").partition(",")[0], "not seen") for value in (reason.expected, reason.got)]
    return f"{values[0]}, then {values[1]}"


def evidence(cause: Cause) -> tuple[str, ...]:
    """Give one line per recompile, and the other guards that failed."""
    lines: list[str] = []
    for each in cause.recompiles:
        head, *others = each.reasons
        lines.append(f"{each.id}: {head.text} (was {head.expected}, now {head.got})")
        lines += [f"{each.id}: also against {other.against}: {other.text}" for other in others[:2]]
    return tuple(lines)


def _frame(compile_id: str) -> str:
    return compile_id.rpartition("/")[0]


def _subject(reason: Reason) -> str:
    return reason.source if reason.kind != "shape" else str(reason.location)
