"""Rule DX122: a recompile without a failed guard, in one of several ranks."""

from __future__ import annotations

from dynx.advice.facts.reasons import has_kind
from dynx.advice.rule import RecompileRule, expected

RULE = RecompileRule(
    id="DX122",
    title="another rank recompiles",
    applies=has_kind("held"),
    advice=lambda cause: expected(
        "see the report of the rank whose guard failed: with torch.compiler.set_enable_guard_collectives, one recompile in "
        "each rank is expected when a guard fails in one"
    ),
)
