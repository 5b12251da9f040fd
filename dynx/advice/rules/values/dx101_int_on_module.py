"""Rule DX101: recompiles because an int attribute of a module changes."""

from __future__ import annotations

import re

from dynx.advice.facts.fixes import CONFIG, of_value
from dynx.advice.facts.libraries import library_of
from dynx.advice.facts.names import spoken
from dynx.advice.facts.reasons import INT
from dynx.advice.rule import Advice, Cause, RecompileRule, expected, one_of
from dynx.records.fix import Fix
from dynx.records.recompile import Reason

_COUNTS_A_LOOP = re.compile(r"^(?:async )?for\b.*\[[^\]]*:|\brange\(|\bislice\(")


def _applies(reason: Reason) -> bool:
    return reason.kind == "value" and reason.holder == "module" and bool(INT.match(reason.expected or ""))


def _advice(cause: Cause) -> Advice:
    library = library_of(cause.first)
    if library is not None:
        return one_of(f"{library} changes it: call that outside the compiled function", "expect one recompile per value")
    if _COUNTS_A_LOOP.search(cause.first.code):
        return expected(
            "the loop is unrolled for each value, and one recompile per value is expected; "
            "to avoid it, compile the body, such as each block, or loop outside"
        )
    return one_of(f"make {spoken(cause.first.source)} a tensor buffer, updated in place")


RULE = RecompileRule(
    id="DX101",
    title="an int on a module changes",
    applies=_applies,
    advice=_advice,
    fixes=lambda cause: [Fix("statement", f"{CONFIG}.allow_unspec_int_on_nn_module = True"), *of_value(cause)],
)
