"""Rule DX107: recompiles because a module alternates between train and eval mode."""

from __future__ import annotations

from dynx.advice.rule import Advice, Cause, RecompileRule, expected


def _advice(cause: Cause) -> Advice:
    way = "read it in the forward pass, not in a hook" if cause.is_captured else "evaluate with the uncompiled module"
    return expected(f"one recompile per mode is expected; to avoid it, {way}")


RULE = RecompileRule(
    id="DX107",
    title="train and eval mode alternate",
    priority=1,  # before rules about attributes
    applies=lambda reason: reason.source.endswith(".training") and reason.kind in ("value", "object", "other"),
    advice=_advice,
)
