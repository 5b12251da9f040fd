"""Advice that several rules give: on Python values, and on instances of one class that share its compiled code."""

from __future__ import annotations

import re

from dynx.advice.facts.fixes import option
from dynx.advice.facts.names import spoken
from dynx.advice.facts.reasons import INT, is_size_in_shape
from dynx.advice.rule import Advice, Cause, expected
from dynx.records.recompile import Reason

_FLOAT = re.compile(r"-?\d+\.\d|-?\d+(?:\.\d+)?e-?\d|-?inf$")

PER_VALUE = expected(
    "one recompile per value is expected; to avoid it, pass the same value on every call, "
    "or branch on it outside the compiled function"
)

# on a decorator of a method, which all instances share, the option does nothing
ISOLATED = option("isolate_recompiles=True", "call torch.compile for each instance, with {} (from torch 2.13 on)")


def instances_advice(cause: Cause) -> Advice:
    """Return the advice for instances of a class that recompile because they differ.

    `isolate_recompiles=True` compiles each instance too: it only keeps them below the recompile limit.
    """
    reason = cause.first
    is_value = reason.kind not in ("type", "object", "function")  # which no tensor stands for
    if reason.holder == "object" and is_value and not is_size_in_shape(reason):
        first = f"pass what depends on {spoken(reason.source)} as an argument, such as a tensor"
    elif _is_number_of_instances(reason, _FLOAT):
        first = f"make {spoken(reason.source)} a tensor, such as a buffer: tensors of equal shape share the compiled code"
    elif cause.apart is not None:
        line = cause.apart.location.own.line
        first = f"remove the graph break at line {line}: each {reason.other_instance} is then part of the graph of its caller"
    else:
        first = f"compile the whole model that contains each {reason.other_instance}"
        if cause.allowed is None:
            return expected(first, *_int_as_tensor(reason), "where none does, one compilation for each instance is expected")
    return expected(first, *_int_as_tensor(reason), *([ISOLATED] if cause.allowed is not None else []))


def _int_as_tensor(reason: Reason) -> list[str]:
    if not _is_number_of_instances(reason, INT):
        return []
    return [f"make {spoken(reason.source)} a tensor, such as a buffer, where it is only computed with"]


def _is_number_of_instances(reason: Reason, number: re.Pattern[str]) -> bool:
    """Return whether instances of a class differ only in one number, which could be a tensor: tensor values are not guarded."""
    names = {source.rpartition(".")[2] for source in (reason.source, *reason.differing)}
    return reason.kind == "value" and bool(number.match(reason.expected or "")) and len(names) == 1
