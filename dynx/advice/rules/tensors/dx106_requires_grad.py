"""Rule DX106: recompiles because requires_grad of a tensor changes."""

from __future__ import annotations

from dynx.advice.facts.names import spoken
from dynx.advice.facts.reasons import has_kind
from dynx.advice.rule import Advice, Cause, RecompileRule, expected


def _advice(cause: Cause) -> Advice:
    source = cause.first.source
    avoid = f"{spoken(source)}.detach() where no gradient is needed, or requires_grad=True in all calls"
    if "_parameters[" in source:
        avoid = "set requires_grad once, before the first call, and choose in the optimizer what to train"
    return expected(f"one recompile per setting is expected; to avoid it, {avoid}")


RULE = RecompileRule(
    id="DX106",
    title="a tensor's requires_grad changes",
    applies=has_kind("requires_grad"),
    advice=_advice,
    is_common=lambda reason: True,
)
