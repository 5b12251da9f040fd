"""Rule DX121: recompiles because a guarded attribute exists in some calls only."""

from __future__ import annotations

import re

from dynx.advice.facts.names import spoken
from dynx.advice.facts.reasons import has_kind
from dynx.advice.rule import Advice, Cause, RecompileRule, one_of


def _advice(cause: Cause) -> Advice:
    source = spoken(cause.first.source)
    if re.fullmatch(r"\w+", source):
        return one_of(f"pass {source} on every call, or on none")
    if "_parameters[" in cause.first.source or "_buffers[" in cause.first.source:
        return one_of(f"assign {source} before the first call, and do not turn a parameter or buffer into a plain attribute")
    return one_of(f"set {source} on every object before the first call, such as in __init__")


RULE = RecompileRule(
    id="DX121",
    title="an attribute is there in some calls only",
    applies=has_kind("attribute"),
    advice=_advice,
)
