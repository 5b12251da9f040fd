"""Rule DX111: recompiles because a guarded function is replaced by another function object."""

from __future__ import annotations

from dynx.advice.facts.reasons import has_kind
from dynx.advice.rule import Advice, Cause, RecompileRule, expected, one_of


def _advice(cause: Cause) -> Advice:
    if "behind torch's wrapper" in cause.first.source:
        return expected(
            "one compilation per callable object or built-in module is expected: torch compiles all through one function; "
            "to give it a cache of its own, compile a function that calls it"
        )
    return one_of("pass the same function", "compile the callbacks, not their caller")


RULE = RecompileRule(id="DX111", title="another function object is called", applies=has_kind("function"), advice=_advice)
