"""Rule DX118: recompiles because the device of a tensor changes."""

from __future__ import annotations

from dynx.advice.facts.names import spoken
from dynx.advice.facts.reasons import is_device
from dynx.advice.rule import RecompileRule, expected

RULE = RecompileRule(
    id="DX118",
    title="a tensor's device changes",
    applies=is_device,
    advice=lambda cause: expected(
        f"one recompile per device is expected; to avoid it, move {spoken(cause.first.source)} to one device before the call"
    ),
)
