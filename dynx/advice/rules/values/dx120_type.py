"""Rule DX120: recompiles because the type of a value changes."""

from __future__ import annotations

import re

from dynx.advice.facts.fixes import first_call
from dynx.advice.facts.names import spoken
from dynx.advice.facts.reasons import has_kind
from dynx.advice.rule import Advice, Cause, RecompileRule, expected


def _advice(cause: Cause) -> Advice:
    reason, source = cause.first, spoken(cause.first.source)
    types = f"{reason.expected} {reason.got}"
    if source == "self":
        return Advice(
            "compile the whole model that contains them; or give each class its own forward; "
            f"or raise torch._dynamo.config.recompile_limit above {max(len(cause.recompiles) + 1, cause.allowed or 0)}",
            has_limit=True,
        )
    if re.search(r"'(?:list|tuple|dict|set)'", types):
        return Advice(f"pass {source} as the same type of container on every call")
    if "Parameter'" in types:
        return Advice(
            f"pass {source} as the same class of tensor on every call: where no gradient is needed, {source}.detach()"
        )
    if any(number in types for number in ("'int'", "'float'", "'bool'")):
        return Advice(f"pass {source} as a tensor on every call, or as a number on every call")
    if "a tensor type" in reason.text:
        return Advice(f"convert {source} to one class of tensor before the call")
    if "functools.partial" in types or "'function'" in types or "'method'" in types:
        return Advice("pass the same kind of callable on every call; or compile the callbacks, not their caller")
    if reason.holder in ("module", "object"):
        return expected(f"one recompile per class is expected; to avoid it, set {source} before the first call")
    return expected(f"one recompile per class is expected; to avoid it, pass objects of one class as {source}")


RULE = RecompileRule(id="DX120", title="a value's type changes", applies=has_kind("type"), advice=_advice, fixes=first_call)
