"""Rule DX202: a graph break where a tensor is converted to a Python number."""

from __future__ import annotations

import re

from dynx.advice.facts import fixes
from dynx.advice.facts.breaks import branch_advice, code_of
from dynx.advice.facts.calls import CALL_OUTSIDE, known_advice
from dynx.advice.rule import Advice, BreakRule, one_of
from dynx.records.fix import Fix
from dynx.records.graph_break import GraphBreak

# code that stores a number in a Python object: `losses.append(...)`, `meter.update(...)`, `self.loss = ...`
_STORES = re.compile(
    r"\.(?:append|add|update|extend|insert|log|add_scalar|put|observe|setdefault)\(|^[\w.]+(?:\.\w+|\[[^]]*\])\s*[-+*/]?=(?!=)"
)
_CONVERTS = re.compile(r"\.item\(|\b(?:int|float|bool|complex)\(")


def _applies(graph_break: GraphBreak) -> bool:
    reads = graph_break.kind.startswith("Data dependent operator") and "_local_scalar_dense" in graph_break.explanation
    return reads or bool(re.search(r"Tensor\.(?:item|tolist)|\.item\(\)|tolist", f"{graph_break.kind} {graph_break.reason}"))


def _advice(graph_break: GraphBreak) -> Advice:
    code = graph_break.code
    header = re.match(r"(?:async )?(?:for|with)\b.*?\)?:(?= )", code)
    used = (header[0] if header else code, *graph_break.uses)
    if re.search(r"\brandom\.", code):
        return one_of(known_advice(graph_break) or CALL_OUTSIDE)
    if any(map(_STORES.search, used)):  # the number would be guarded, so that each new one recompiles
        return one_of("store the detached tensor, or return it, and read its value outside the compiled function")
    if any(re.search(r"\brange\(", line) for line in used):  # the loop would be unrolled for each value
        return one_of("loop outside the compiled function, or a fixed number of times with a mask")
    branch = next((line for line in used if re.match(r"(?:el)?if\b|while\b|assert\b", line)), None)
    if branch is not None:  # a captured number would break the graph at the branch
        return one_of(branch_advice(branch))
    if re.search(r"\bsplit\(.*\.tolist\(\)", code):
        return one_of(
            "mask or pad instead of splitting by lengths, or use tensor operations such as segment_reduce",
            fixes.setting("capture_scalar_outputs = True"),
        )
    if ".tolist()" in code:
        return one_of("keep it a tensor, or read the values outside the compiled function")
    if not _CONVERTS.search(code) and re.search(r"[\w)\]]\[", code):
        return one_of(
            "index with index.view(1): a tensor without dims is read as a Python number; make a list a tensor first: "
            "torch.tensor(list)[index.view(1)]",
            "choose outside the compiled function",
        )
    if re.search(r"\bf['\"]|\bstr\(|\.format\(", code):
        return one_of("format the text outside the compiled function: it needs the tensor's value")
    return one_of("keep it a tensor", fixes.setting("capture_scalar_outputs = True"))


RULE = BreakRule(
    id="DX202",
    title="a tensor is converted to a Python number",
    applies=_applies,
    title_of=lambda graph_break: f"reading a tensor's value breaks the graph{code_of(graph_break)}",
    advice=_advice,
    fixes=lambda graph_break: [Fix("statement", f"{fixes.CONFIG}.capture_scalar_outputs = True"), *fixes.branch(graph_break)],
)
