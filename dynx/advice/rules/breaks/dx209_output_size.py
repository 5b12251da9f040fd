"""Rule DX209: a graph break at an operator whose output size depends on the values of a tensor, such as `nonzero`."""

from __future__ import annotations

from dynx.advice.facts.breaks import code_of
from dynx.advice.facts.fixes import CONFIG, setting
from dynx.advice.rule import BreakRule, one_of
from dynx.records.fix import Fix

RULE = BreakRule(
    id="DX209",
    title="an output size depends on the data",
    applies=lambda graph_break: (
        graph_break.kind.startswith("Dynamic shape operator")
        or "output shape depends on input Tensor data" in graph_break.explanation
    ),
    title_of=lambda graph_break: (
        f"the output size of {graph_break.callee or 'the operator'} depends on the data{code_of(graph_break)}"
    ),
    advice=lambda graph_break: one_of(
        setting("capture_dynamic_output_shape_ops = True"),
        "mask with torch.where",
        "select outside the compiled function",
    ),
    fixes=lambda graph_break: [Fix("statement", f"{CONFIG}.capture_dynamic_output_shape_ops = True")],
)
