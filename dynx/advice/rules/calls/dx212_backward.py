"""Rule DX212: a graph break at backward() or torch.autograd.grad() in the compiled function."""

from __future__ import annotations

from dynx.advice.facts.breaks import code_of
from dynx.advice.facts.fixes import CONFIG, setting
from dynx.advice.rule import Advice, BreakRule, one_of
from dynx.records.fix import Fix
from dynx.records.graph_break import GraphBreak


def _is_grad(graph_break: GraphBreak) -> bool:
    return "torch.autograd.grad" in graph_break.kind or graph_break.kind == "autograd.grad with compiled autograd"


def _advice(graph_break: GraphBreak) -> Advice:
    if graph_break.captures_backward and _is_grad(graph_break):  # refused, also with trace_autograd_ops
        return one_of("compile only the forward, and compute gradients outside")
    if graph_break.compiled_autograd:  # outside of the compiled function it would not be compiled
        return one_of(
            "leave it: torch._dynamo.config.compiled_autograd compiles only a backward pass that runs inside compiled code"
        )
    if _is_grad(graph_break):
        return one_of(setting("trace_autograd_ops = True"), "compile only the forward, and compute gradients outside")
    return one_of("compile only the forward and the loss, and call backward() outside")


RULE = BreakRule(
    id="DX212",
    title="backward() runs inside the compiled function",
    applies=lambda graph_break: graph_break.kind == "Unsupported Tensor.backward() call" or _is_grad(graph_break),
    title_of=lambda graph_break: f"gradients are computed inside the compiled function{code_of(graph_break)}",
    advice=_advice,
    fixes=lambda graph_break: (
        [] if graph_break.captures_backward else [Fix("statement", f"{CONFIG}.trace_autograd_ops = True")]
    ),
)
