"""DX115: instances of one class that differ share the cache entries of its compiled code."""

from __future__ import annotations

from collections.abc import Iterator

from dynx.advice.facts.fixes import isolated, tensor_attribute
from dynx.advice.facts.reasons import differs_by_instance
from dynx.advice.facts.shared_advice import instances_advice
from dynx.advice.rule import Cause, RecompileRule
from dynx.records.fix import Fix


def _fixes(cause: Cause) -> Iterator[Fix]:
    yield from isolated(cause)
    yield from tensor_attribute(cause)


RULE = RecompileRule(
    id="DX115",
    title="instances of one class share its compiled code",
    priority=2,  # whatever attribute differs
    applies=differs_by_instance,
    advice=instances_advice,
    fixes=_fixes,
)
