"""Rule DX110: recompiles because an object that is guarded by identity is replaced by another object."""

from __future__ import annotations

from dynx.advice.facts.reasons import MEMBER_OF_ENUM, has_kind
from dynx.advice.facts.shared_advice import PER_VALUE
from dynx.advice.rule import Advice, Cause, RecompileRule, expected


def _advice(cause: Cause) -> Advice:
    if any("list(dict.keys(" in reason.text for each in cause.recompiles for reason in each.reasons):
        avoid = "look it up in the dict outside the compiled function, and pass the result as a tensor"
        return expected(f"one recompile per key is expected; to avoid it, {avoid}")
    if MEMBER_OF_ENUM.match(cause.last.got or ""):
        return PER_VALUE
    return expected("one recompile per object is expected; to avoid it, pass the same object")


RULE = RecompileRule(id="DX110", title="an object guarded by identity is replaced", applies=has_kind("object"), advice=_advice)
