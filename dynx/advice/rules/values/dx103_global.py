"""Rule DX103: recompiles because a global variable changes."""

from __future__ import annotations

from dynx.advice.facts.fixes import of_value
from dynx.advice.facts.reasons import NUMBER, has_kind
from dynx.advice.facts.shared_advice import PER_VALUE
from dynx.advice.rule import Advice, Cause, RecompileRule, one_of


def _advice(cause: Cause) -> Advice:
    is_number = NUMBER.match(cause.first.expected or "")
    return one_of("pass it as an argument, or make it a tensor") if is_number else PER_VALUE


RULE = RecompileRule(
    id="DX103", title="a global changes", applies=has_kind("value", "none", holder="global"), advice=_advice, fixes=of_value
)
