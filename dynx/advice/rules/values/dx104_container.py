"""Rule DX104: recompiles because the length or the keys of a container change."""

from __future__ import annotations

import re

from dynx.advice.facts.libraries import library_of
from dynx.advice.facts.names import spoken
from dynx.advice.facts.reasons import CONTAINER, has_kind
from dynx.advice.rule import Advice, Cause, RecompileRule, expected, one_of


def _advice(cause: Cause) -> Advice:
    reason = cause.first
    if reason.holder == "optimizer":
        return expected(
            "one recompile is expected: the first step creates the optimizer's state; to avoid it, call step() uncompiled"
        )
    source = spoken(reason.source)
    if source.endswith("._modules"):
        owner = source.removesuffix("._modules")
        first = f"add all modules to {owner} before the first call"
        return expected(
            first, "for other models, one recompile each is expected; torch.compiler.reset() drops what is compiled"
        )
    if reason.kind == "keys" and reason.holder == "argument":
        return _keys_of_argument(cause, source)
    library = library_of(reason)
    if library is not None and reason.holder != "argument":
        return expected(
            f"one recompile is expected: {library} changes {source}; to avoid it, do what changes it before the first compiled "
            "call, such as by one call of the uncompiled function"
        )
    if reason.kind == "keys":
        return one_of(f"fill {source} with all its keys before the first call, such as in __init__")
    if reason.holder == "argument":
        return one_of(f"pass {source} as one tensor: pad it, or mark_dynamic({source}, 0)")
    if reason.expected == "0" and len(cause.recompiles) == 1:
        once = "such as by one call of the uncompiled function"
        return one_of(f"fill {source} before the first call, {once}", "expect one recompile")
    whole = f"allocate {source} at its full length before the first call"
    grows = re.search(r"\.(?:append|extend|insert)\(", reason.code) is not None  # in compiled code, such as in a hook
    emptied = [f"{source}.clear() before each call, if items of earlier calls are not needed"] if grows else []
    return one_of(*emptied, f"{whole}, or keep the data in one tensor", "change it outside")


def _keys_of_argument(cause: Cause, source: str) -> Advice:
    calls = cause.called_from.library if cause.called_from is not None else None
    if calls is not None:
        return expected(f"one recompile per set of arguments is expected: {calls} makes the call, with other keys in {source}")
    same = f"pass the same keys in {source} on every call, with a default value where there is none"
    if any((text or "no ").startswith("no ") for text in (cause.first.expected, cause.first.got)):
        return one_of(same)
    # each of both calls has keys that the other lacks: they are data
    return one_of(f"pass the values of {source} as a list, which has no keys to guard", same)


RULE = RecompileRule(id="DX104", title="a container's length changes", applies=has_kind(*CONTAINER), advice=_advice)
