"""Rule DX107: recompiles because a module alternates between train and eval mode."""

from __future__ import annotations

from dynx.advice.rule import RecompileRule, expected

RULE = RecompileRule(
    id="DX107",
    title="train and eval mode alternate",
    priority=1,  # before rules about attributes
    applies=lambda reason: reason.source.endswith(".training") and reason.kind in ("value", "object", "other"),
    advice=lambda cause: expected("one recompile per mode is expected; to avoid it, evaluate with the uncompiled module"),
)
