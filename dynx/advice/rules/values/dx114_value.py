"""Rule DX114: recompiles because a Python value changes, if no more specific rule applies."""

from __future__ import annotations

import re

from dynx.advice.facts.fixes import NOT_STATIC, as_tensor, of_value, option
from dynx.advice.facts.libraries import library_of
from dynx.advice.facts.line_uses import calls_an_item, indexed_by, is_looked_up, loops_over
from dynx.advice.facts.names import ITEM, spoken
from dynx.advice.facts.reasons import INT, NUMBER, has_kind, is_counted, is_result
from dynx.advice.facts.shared_advice import PER_VALUE
from dynx.advice.rule import Advice, Cause, RecompileRule, expected, one_of
from dynx.records.observed import Specialized

_BRANCH = re.compile(r"\b(?:if|elif|while|assert|match)\b")
_LITERAL = re.compile(r"['\"\d-]|True$|False$")
_OFFSET = ".storage_offset()"


def _advice(cause: Cause) -> Advice:
    reason = cause.first
    library, source = library_of(reason), spoken(reason.source)
    is_number = bool(NUMBER.match(reason.expected or ""))
    if reason.kind == "shape" and library is not None:
        return expected(
            f"one recompile is expected: the code of {library} that uses this number is valid for a range of values"
        )
    if reason.kind == "shape" and reason.source.endswith(_OFFSET):
        tensor = source.removesuffix(_OFFSET)
        return one_of(
            f"pass {tensor}.clone(): views that begin at 0 or 1 in their storage compile on their own", "expect one recompile"
        )
    if reason.kind == "shape":
        return expected("one recompile per side of the branch is expected; to avoid it, branch outside the compiled function")
    if reason.holder != "argument" and is_number and is_counted(reason):
        return one_of(f"make {source} a tensor, updated in place with add_(1)", "count outside the compiled function")
    if source.startswith("os.environ["):
        return one_of(f"read {source} outside the compiled function, and pass what it selects; a number as a tensor")
    if source.endswith(ITEM):
        tensor = source.removesuffix(ITEM)
        return one_of(f"index with {tensor}.view(1): a tensor without dims becomes a Python number there")
    if is_number:
        return _on_number(cause, source)
    if "None" in (reason.expected, reason.got):
        return _on_none(cause, source)
    if reason.holder == "argument":
        return PER_VALUE
    if library is None:
        return expected(
            f"one recompile per value is expected; to avoid it, copy what {source} selects into one tensor in place, "
            "or branch on it outside the compiled function"
        )
    return expected(
        f"one recompile per value is expected: {source} is {library}'s; to avoid it, choose it before the first call"
    )


def _on_number(cause: Cause, source: str) -> Advice:
    reason = cause.first
    if cause.fixed is not None:  # torch made it dynamic, but the code needed its value
        return one_of(f"this line needs the exact value of {source}: {_needed(cause.fixed, source)}")
    if not NUMBER.match(reason.got or "0"):
        return one_of(f"pass {source} as the same type on every call: as a tensor, or as a Python number")
    if "." in (reason.got or "") and INT.match(reason.expected or ""):
        return one_of(f"pass {source} as a float on every call", as_tensor(source))
    if cause.after is not None and is_result(cause):
        return one_of(f"remove the graph break{': ' if cause.advice_after else ''}{cause.advice_after}")
    if loops_over(reason.code, source):
        return one_of("the loop is unrolled for each value: compile the body of one step, and loop outside")
    if len(cause.recompiles) > 1 and _BRANCH.search(reason.code):
        return one_of(as_tensor(source, ", and select with torch.where instead of if"), "decide outside the compiled function")
    if {"0", "1"} & {reason.expected, reason.got}:
        return expected(
            as_tensor(source, " where it is only computed with; 0 and 1 always compile on their own: one recompile is expected")
        )
    tensor = as_tensor(source) if reason.holder == "argument" else f"make {source} a tensor"
    return one_of(*([NOT_STATIC] if cause.is_static else []), tensor, option("dynamic=True"))


def _on_none(cause: Cause, source: str) -> Advice:
    is_passed = cause.first.holder == "argument"
    when = f"pass {source} in every call" if is_passed else f"set {source} before the first call, such as in __init__"
    got = next((each for each in (cause.first.expected, cause.first.got) if each != "None"), None) or ""
    like = got if _LITERAL.match(got) else "a tensor that does the same, such as zeros"
    return one_of(f"{when}: instead of None, {like}", "expect one recompile")


def _needed(fixed: Specialized, source: str) -> str:
    if loops_over(fixed.code, source):
        return "loop outside the compiled function"
    if is_looked_up(fixed.code, source):
        return "look it up outside the compiled function, and pass what is found"
    if (indexed := indexed_by(fixed.code, source)) is not None:
        container, item = indexed
        instead = f"pass {item} instead"
        if calls_an_item(fixed.code, source):
            return f"choose outside the compiled function: {instead}; or expect one recompile per value"
        return f"make {container} a tensor, and index it with a 1-element tensor; or {instead}"
    if _BRANCH.search(fixed.code):
        return "branch outside the compiled function, or pass a tensor and select with torch.where"
    return "compute what depends on it outside the compiled function, and pass a tensor; or pass the same value on every call"


RULE = RecompileRule(
    id="DX114",
    title="a Python value changes",
    priority=-1,  # every other rule about a value is more specific
    applies=has_kind("value", "none", "shape"),
    advice=_advice,
    fixes=of_value,
)
