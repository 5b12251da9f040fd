"""Describe a guarded value, and how it changed, for the titles of findings."""

from __future__ import annotations

import re

from dynx.advice.facts.names import SIZE, is_array, spoken
from dynx.advice.facts.reasons import DEVICES, MEMBER_OF_ENUM, is_device, is_grad_mode
from dynx.advice.rule import Cause
from dynx.records.recompile import Reason


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
    if reason.kind in ("dtype", "requires_grad"):
        return f"{source}.{reason.kind}"
    names = {"rank": f"{source}.dim()", "type": f"type of {source}", "length": f"len({source})", "keys": f"keys of {source}"}
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
    """Return a guarded value as text; if it is None, return `unknown`.

    A value of torch's global state is returned without the name of the state: "num_threads 4" as "4".
    """
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
    """Return the evidence for a cause, as lines of text: for each recompile, the failed guards of up to three cache entries."""
    lines: list[str] = [f"guarded by: {cause.first.code}"] if cause.first.code else []
    for recompile in cause.recompiles:
        first, *further = recompile.reasons
        lines.append(f"{recompile.id}: {first.text} (was {first.expected}, now {first.got})")
        lines += [f"{recompile.id}: also against {reason.against}: {reason.text}" for reason in further[:2]]
    return tuple(lines)
