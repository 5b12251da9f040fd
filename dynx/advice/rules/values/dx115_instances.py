"""Rule DX115: recompiles because instances of one class differ, but share the cache entries of the compiled code."""

from __future__ import annotations

from dynx.advice.facts.fixes import isolated, tensor_attribute
from dynx.advice.facts.reasons import differs_by_instance
from dynx.advice.facts.shared_advice import instances_advice
from dynx.advice.rule import RecompileRule

RULE = RecompileRule(
    id="DX115",
    title="instances of one class share its compiled code",
    priority=2,  # whatever attribute differs
    applies=differs_by_instance,
    advice=instances_advice,
    fixes=lambda cause: [*isolated(cause), *tensor_attribute(cause)],
)
