"""Rule DX205: a graph break at a function that is under `torch.compiler.disable`, or that torch skips."""

from __future__ import annotations

import re

from dynx.advice.facts.breaks import code_of, name_of
from dynx.advice.facts.calls import known_advice
from dynx.advice.rule import Advice, BreakRule, one_of
from dynx.records.graph_break import GraphBreak

_KINDS = (
    "Skip calling `torch.compiler.disable()`",
    "Attempted to call function marked as skipped",
    "Skip inlining `torch.compiler.disable()`",
    "Attempted to inline function marked as skipped",
)
_WRAPPED_STEP = re.compile(r"function `(?P<name>[\w.]*step)` in file `[^`]*\blr_scheduler\.py`")
_DISABLE_REASON = re.compile(r"`torch\.compiler\.disable` \(reason: (?P<reason>.+)\)")


def _title(graph_break: GraphBreak) -> str:
    if _WRAPPED_STEP.search(graph_break.explanation):
        return f"a scheduler has wrapped the optimizer's step, and torch does not trace the wrapper{code_of(graph_break)}"
    if "torch.compiler.disable" not in graph_break.kind:
        return f"{name_of(graph_break)} is on torch's list of functions that are not traced{code_of(graph_break)}"
    reason = _DISABLE_REASON.search(graph_break.explanation)
    because = f" ({reason['reason']})" if reason and reason["reason"] != "None" else ""
    return f"{name_of(graph_break)} is under torch.compiler.disable{because}{code_of(graph_break)}"


def _advice(graph_break: GraphBreak) -> Advice:
    if _WRAPPED_STEP.search(graph_break.explanation):
        return one_of("leave it: only the wrapper runs eagerly; Dynamo compiles the step that it calls")
    known = known_advice(graph_break)
    if known is not None:
        return one_of(known)
    if "torch.compiler.disable" in graph_break.kind:
        return one_of(
            "call it before or after the compiled function; where it has to be called inside, wrap it as a "
            "torch.library.custom_op, or remove torch.compiler.disable if it is no longer needed"
        )
    return one_of("call it outside the compiled function")


RULE = BreakRule(
    id="DX205",
    title="a disabled or skipped function is called",
    priority=-3,  # after DX204: built-in functions are skipped too
    applies=lambda graph_break: graph_break.kind.startswith(_KINDS),
    title_of=_title,
    advice=_advice,
    is_call=True,
)
