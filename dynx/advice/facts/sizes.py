"""Advice for a tensor size that changes: mark it as dynamic, unless a parameter has this size or code needs the exact size."""

from __future__ import annotations

import re

from dynx.advice.facts.fixes import NOT_STATIC, marked, option, setting
from dynx.advice.facts.line_uses import is_loop
from dynx.advice.facts.names import IN_CONTAINER_OF_OBJECT, SIZE, is_array, spoken
from dynx.advice.facts.shared_advice import ISOLATED
from dynx.advice.rule import Advice, Cause, expected, one_of
from dynx.records.fix import Mark
from dynx.records.observed import Specialized
from dynx.records.recompile import Reason

_LOOKUP = re.compile(r"\w\[[^\]]*(?:\.size\(|\.shape\b|\blen\()|\.get\(|\bif \w+ (?:not )?in [\w.]+")
_PARAMETERS = re.compile(r"\.(?:named_)?(?:parameters|buffers)\(")
_PARAMETER_HINT = "Guard failed on a parameter"  # in torch's message
_GENERATION = one_of(
    option(
        "dynamic=True",
        "two graphs are expected: generate() calls the model with the prompt, then with one token at a time; "
        "for prompts of many lengths, compile with {}",
    )
)
_STATIC_SIZES = "force_parameter_static_shapes = False"
_STATIC_PARAMETER = one_of(
    setting(_STATIC_SIZES, "sizes of an nn.Parameter are static: {}; where it needs no gradient, pass its .data")
)


_PER_MODEL = expected(
    "one compilation per model is expected: sizes of its parameters are static, and this line fixes other sizes to them; "
    "to avoid it, compile a function of one tensor with all values, such as torch.nn.utils.parameters_to_vector(...)"
)


def size_advice(cause: Cause) -> Advice:
    """Return the advice for recompiles because one tensor size changes."""
    reason = cause.first
    match = SIZE.match(reason.source)
    if is_size_one(reason):
        return _SIZE_ONE
    if reason.kind == "shape" or match is None:
        return expected("one recompile per side of the branch is expected; to avoid it, branch outside the compiled function")
    if "_parameters[" in match["tensor"]:
        return one_of("pad the parameter to one size, the largest", *([ISOLATED] if cause.allowed is not None else []))
    if _PARAMETER_HINT in reason.text:
        return _STATIC_PARAMETER
    if cause.is_captured:  # torch calls the hook: nothing can be marked before
        return one_of(option("dynamic=True")) if cause.fixed is None else _advice_on_fixed_size(cause.fixed)
    if cause.fixed is not None:
        if len(cause.recompiles) == 1 and not (is_loop(cause.fixed.code) or _LOOKUP.search(cause.fixed.code)):
            return _marked(cause, "{} before the call, and all sizes that this line compares with it", _PAD)
        return _advice_on_fixed_size(cause.fixed)
    if is_array(reason.source):
        tensor = f"torch.from_numpy({spoken(match['tensor'])})"
        return one_of(option("dynamic=True"), f"pass t = {tensor}, after mark_dynamic(t, {match['dim']})")
    if IN_CONTAINER_OF_OBJECT.search(match["tensor"]):
        return one_of(option("dynamic=True"), f"create {spoken(match['tensor'])} once, at its largest size; write in place")
    if cause.after is not None:
        line = cause.after.location.own.line
        return one_of(option("dynamic=True"), f"remove the graph break at line {line}: a value inside cannot be marked")
    has_one = "1" in (reason.expected, reason.got)
    if has_one and match["dim"] == "1" and cause.called_from is not None and "/generation/" in cause.called_from.file:
        return _GENERATION
    if has_one:
        if len(cause.recompiles) > 1:
            return _marked(cause, "{}, and warm up with 2 or more", _ONE_ON_ITS_OWN)
        return _SIZE_ONE
    if cause.called_from is not None and cause.called_from.library is not None:  # such as a Trainer
        return _marked(cause, "{} where the batch is made, such as in the data collator", f"{_PAD} there")
    if match["dim"] == "0" and len(cause.recompiles) == 1 and _is_less(reason.got, reason.expected):
        return _marked(cause, _BEFORE, f"{_PAD}; of a smaller last batch: drop_last=True in the DataLoader")
    return _marked(cause, _BEFORE, _PAD)


_BEFORE = "{} before the call"
_PAD = "pad to one size"
_ONE_ON_ITS_OWN = "one recompile for size 1 is expected; to avoid it, pad, or compile a separate function for size 1"


def _marked(cause: Cause, text: str, *others: str) -> Advice:
    """Return the advice to mark the changed size and the other changing sizes: marking only one of equal sizes may raise."""
    match = SIZE.match(cause.first.source)
    assert match is not None  # checked by the caller
    own = Mark(match["tensor"], int(match["dim"]))
    more = [mark for mark in dict.fromkeys((*cause.together, *cause.varying)) if mark != own]
    may_fail = not (more or cause.is_used_elsewhere)  # mark_dynamic raises if other code fixes the size
    return one_of(*([NOT_STATIC] if cause.is_static else []), marked(own, more, text, may_fail=may_fail), *others)


_SIZE_ONE = expected(
    "size 1 compiles on its own: one recompile is expected; to avoid it, pad, or compile a separate function for size 1"
)


def is_size_one(reason: Reason) -> bool:
    """Return whether a dynamic size is now 1, which fails the guard `2 <= x.size(0)` that every dynamic size has."""
    return reason.kind == "shape" and reason.got == "1" and (reason.expected or "").startswith("2 <= ")


def is_compared_with_parameter(fixed: Specialized) -> bool:
    """Return whether the line that fixed a size goes through the parameters of a module, whose sizes are static."""
    return bool(_PARAMETERS.search(fixed.code))


def _is_less(got: str | None, expected: str | None) -> bool:
    return (got or "").isdigit() and (expected or "").isdigit() and int(got or 0) < int(expected or 0)


def _advice_on_fixed_size(fixed: Specialized) -> Advice:
    """Return the advice for a size that a line specializes, where `mark_dynamic` would raise ConstraintViolationError."""
    if is_compared_with_parameter(fixed):
        return _PER_MODEL
    if is_loop(fixed.code):
        return one_of("the loop is unrolled for each size: compile the body of one step and loop outside", _PAD)
    if _LOOKUP.search(fixed.code):
        return one_of("look it up outside the compiled function and pass the result in as an argument")
    return one_of(
        "this line needs the exact size: compute it outside the compiled function",
        _PAD,
        setting(_STATIC_SIZES, "if an nn.Parameter has this size, {}"),
    )
