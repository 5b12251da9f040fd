"""Rule DX108: recompiles because grad mode or inference mode differs between calls."""

from __future__ import annotations

from dynx.advice.facts.reasons import is_grad_mode
from dynx.advice.rule import RecompileRule, expected

RULE = RecompileRule(
    id="DX108",
    title="grad mode differs between calls",
    priority=1,  # before DX109 (global state) and DX118 (dispatch keys)
    applies=is_grad_mode,
    advice=lambda cause: expected(
        "one recompile per mode is expected; to avoid it, make every call in the same mode (no_grad, inference_mode or "
        "neither), also to warm up and in other threads; or call the uncompiled function in the other mode"
    ),
)
