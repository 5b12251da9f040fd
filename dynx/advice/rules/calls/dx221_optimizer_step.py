"""Rule DX221: torch.optim breaks the graph around `step()`, to compile it on its own."""

from __future__ import annotations

import re

from dynx.advice.facts.breaks import code_of
from dynx.advice.rule import BreakRule, one_of
from dynx.records.graph_break import GraphBreak


def _applies(graph_break: GraphBreak) -> bool:
    """Return whether `Optimizer.step` calls `graph_break()`: the user's line only calls the step.

    If the step itself is compiled, under any name, no line of the user is traced, so that `chain` is empty.
    """
    is_called = graph_break.kind.startswith("Call to `torch._dynamo.graph_break()`")
    is_of_step = not graph_break.chain or re.search(r"\bstep\b", graph_break.code)
    return is_called and "graph_break" not in graph_break.code and bool(is_of_step)


RULE = BreakRule(
    id="DX221",
    title="an optimizer's step is called inside the compiled function",
    applies=_applies,
    title_of=lambda graph_break: f"torch.optim breaks the graph around step(){code_of(graph_break)}",
    advice=lambda graph_break: one_of("to avoid it, call step() after the compiled function"),
    is_expected=True,
)
