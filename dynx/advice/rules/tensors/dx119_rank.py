"""Rule DX119: recompiles because the number of dims of a tensor changes."""

from __future__ import annotations

from dynx.advice.facts.names import spoken
from dynx.advice.facts.reasons import has_kind
from dynx.advice.rule import RecompileRule, expected

RULE = RecompileRule(
    id="DX119",
    title="a tensor's number of dims changes",
    applies=has_kind("rank"),
    advice=lambda cause: expected(
        f"one recompile per number of dims is expected; to avoid it, give {spoken(cause.first.source)} one number of dims "
        "before the call: reshape it, with mark_dynamic where a size differs; unsqueeze makes a size of 1, which compiles on "
        "its own"
    ),
    is_size=True,
)
