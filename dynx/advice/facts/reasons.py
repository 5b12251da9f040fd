"""Predicates on a failed guard (`Reason`), which several rules and the titles of findings use."""

from __future__ import annotations

import re
from collections.abc import Callable

from dynx.advice.facts.names import spoken
from dynx.advice.rule import Cause
from dynx.records.recompile import GuardKind, Reason

NUMBER = re.compile(r"-?\d")
INT = re.compile(r"-?\d+$")
CONTAINER: tuple[GuardKind, ...] = ("length", "keys")
MEMBER_OF_ENUM = re.compile(r"[A-Za-z_]\w*(?:\.\w+)+$")
DEVICES = r"\b(?:CPU|CUDA|XPU|MPS|HPU|Meta)\b"  # dispatch keys of a tensor's device
_AUTOGRAD_KEYS = re.compile(r"\b(?:ADInplaceOrView|Autograd\w*)(?:, )?")
_OF_INSTANCES = ("value", "none", "length", "keys", "object", "function", "type")


def has_kind(*kinds: GuardKind, holder: str | None = None) -> Callable[[Reason], bool]:
    """Return a predicate that is true for guards of these kinds.

    If `holder` is given, the guarded value must also be held by an object of this kind, such as "module" or "global".
    """
    return lambda reason: reason.kind in kinds and (holder is None or reason.holder == holder)


def is_grad_mode(reason: Reason) -> bool:
    """Return whether a guard failed because of grad mode or inference mode, or of a tensor created under inference mode."""
    if reason.kind == "global_state":
        return "grad_mode" in reason.source.split()
    # an inference tensor has the dispatch keys of a normal tensor without those of autograd
    keys = [_AUTOGRAD_KEYS.sub("", value or "").replace(", )", ")") for value in (reason.expected, reason.got)]
    return reason.kind == "tensor" and "dispatch key" in reason.text and keys[0] == keys[1]


def is_device(reason: Reason) -> bool:
    """Return whether a guard failed because of a tensor's device; torch compares dispatch keys, which include the device."""
    if reason.kind == "device":
        return True
    keys = [re.findall(DEVICES, value or "") for value in (reason.expected, reason.got)]
    return reason.kind == "tensor" and "dispatch key" in reason.text and keys[0] != keys[1]


def differs_by_instance(reason: Reason) -> bool:
    """Return whether an attribute of `self` differs because the cache entry was compiled for another instance."""
    is_its_own = reason.source.startswith("self.") and reason.kind in _OF_INSTANCES
    return reason.other_instance is not None and is_its_own


def is_size_in_shape(reason: Reason) -> bool:
    """Return whether a guard is on a size: on one size, or on an expression with sizes."""
    return reason.kind in ("size", "shape") and ".size()" in reason.source


def is_counted(reason: Reason) -> bool:
    """Return whether the line that requested the guard also changes the guarded number: `Model.calls += 1`."""
    name = re.escape(spoken(reason.source).rpartition(".")[2])
    return bool(re.search(rf"\b{name}\s*[-+*/]?=(?!=)", reason.code))


def is_result(cause: Cause) -> bool:
    """Return whether a resume function recompiles because of a value that the line of the graph break before it computed."""
    source = spoken(cause.first.source)
    if cause.after is None or cause.first.holder not in ("argument", "object"):
        return False
    return source.startswith("<value of") or bool(re.match(rf"{re.escape(source)}\s*=(?!=)", cause.after.code))
