"""Rule DX117: recompiles because the strides of a tensor change."""

from __future__ import annotations

import re

from dynx.advice.facts.names import spoken
from dynx.advice.facts.reasons import has_kind
from dynx.advice.rule import Advice, Cause, RecompileRule, one_of


def _advice(cause: Cause) -> Advice:
    tensor = spoken(re.sub(r"\.(?:size|stride)\(\)\[\d+\]$", "", cause.first.source))
    if re.search(r"[.\[]", tensor):  # stored in an object, such as the state of a cache
        return one_of(f"store {tensor} in one memory format: .contiguous(), or copy_() into one buffer, where it is assigned")
    return one_of(
        f"pass {tensor} in one memory format: .contiguous(memory_format=...) before the call; "
        "for a view with sizes of 1: .clone(memory_format=torch.contiguous_format)"
    )


RULE = RecompileRule(id="DX117", title="a tensor's strides change", applies=has_kind("stride"), advice=_advice, is_size=True)
