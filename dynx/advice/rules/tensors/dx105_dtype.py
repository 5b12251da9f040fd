"""Rule DX105: recompiles because the dtype of a tensor changes."""

from __future__ import annotations

from dynx.advice.facts.names import spoken
from dynx.advice.facts.reasons import has_kind
from dynx.advice.rule import RecompileRule, one_of

RULE = RecompileRule(
    id="DX105",
    title="a tensor's dtype changes",
    applies=has_kind("dtype"),
    advice=lambda cause: one_of(
        f"convert {spoken(cause.first.source)} to one dtype before the call",
        "where both are on purpose, one compilation for each dtype is expected",
    ),
)
