"""Rule DX221: torch.optim breaks the graph around `step()`, to compile it on its own."""

from __future__ import annotations

from dynx.advice.facts.breaks import code_of
from dynx.advice.rule import BreakRule, one_of
from dynx.records.graph_break import GraphBreak


def _applies(graph_break: GraphBreak) -> bool:
    """Return whether `Optimizer.step` calls `graph_break()`: the user's line only calls the step, maybe by another name.

    Of torch's own functions, only those of torch.optim call it.
    """
    is_called = graph_break.kind.startswith("Call to `torch._dynamo.graph_break()`")
    return is_called and "graph_break" not in graph_break.code and graph_break.location.library is None


RULE = BreakRule(
    id="DX221",
    title="an optimizer's step is called inside the compiled function",
    applies=_applies,
    title_of=lambda graph_break: f"torch.optim breaks the graph around step(){code_of(graph_break)}",
    advice=lambda graph_break: one_of("to avoid it, call step() after the compiled function"),
    is_expected=True,
)
