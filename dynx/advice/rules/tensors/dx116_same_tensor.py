"""Rule DX116: recompiles because two arguments are the same tensor in some calls only."""

from __future__ import annotations

from dynx.advice.facts.reasons import has_kind
from dynx.advice.rule import RecompileRule, one_of

RULE = RecompileRule(
    id="DX116",
    title="two arguments are one tensor in some calls only",
    applies=has_kind("alias"),
    advice=lambda cause: one_of("pass different tensors on every call: copy one with clone() where it is the same"),
)
