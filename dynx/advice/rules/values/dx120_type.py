"""Rule DX120: recompiles because the type of a value changes."""

from __future__ import annotations

import re

from dynx.advice.facts.names import spoken
from dynx.advice.facts.reasons import has_kind
from dynx.advice.rule import Advice, Cause, RecompileRule, expected, one_of


def _advice(cause: Cause) -> Advice:
    reason, source = cause.first, spoken(cause.first.source)
    types = f"{reason.expected} {reason.got}"
    if source == "self":
        return expected("compile the whole model that contains them", "define forward in each class")
    if re.search(r"'(?:list|tuple|dict|set)'", types):
        return one_of(f"pass {source} as the same type of container on every call")
    if "Parameter'" in types:
        return one_of(
            f"pass {source} as the same class of tensor on every call: {source}.clone() is a plain tensor, "
            "and .detach() one without gradient"
        )
    if any(number in types for number in ("'int'", "'float'", "'bool'")):
        return one_of(f"pass {source} as a tensor on every call, or as a number on every call")
    if "a tensor type" in reason.text:
        return one_of(f"convert {source} to one class of tensor before the call")
    if "functools.partial" in types or "'function'" in types or "'method'" in types:
        return one_of("pass the same kind of callable on every call", "compile the callbacks, not their caller")
    if reason.holder in ("module", "object"):
        return expected(f"one recompile per class is expected; to avoid it, set {source} before the first call")
    return expected(f"one recompile per class is expected; to avoid it, pass objects of one class as {source}")


RULE = RecompileRule(id="DX120", title="a value's type changes", applies=has_kind("type"), advice=_advice)
