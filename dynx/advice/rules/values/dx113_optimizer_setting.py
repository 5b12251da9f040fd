"""Rule DX113: recompiles of an optimizer step because a setting of the optimizer changes, such as the learning rate."""

from __future__ import annotations

from dynx.advice.facts.reasons import CONTAINER
from dynx.advice.rule import RecompileRule, one_of

RULE = RecompileRule(
    id="DX113",
    title="an optimizer setting changes inside the compiled step",
    priority=3,  # whatever kind of value the setting is
    applies=lambda reason: reason.holder == "optimizer" and reason.kind not in CONTAINER,
    advice=lambda cause: one_of(f"call step() uncompiled, or make {cause.first.source.rpartition('.')[2]} a tensor"),
)
