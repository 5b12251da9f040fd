"""Rule DX207: torch.compile is applied to a generator function, which runs eagerly."""

from __future__ import annotations

from dynx.advice.rule import PlaceRule, one_of

RULE = PlaceRule(
    id="DX207",
    title="torch.compile on a generator function",
    priority=5,  # no part of the function is compiled, also if it belongs to a library
    applies=lambda graph_break: graph_break.kind == "Attempt to trace generator",
    title_of=lambda graph_break: f"{graph_break.location.function} is a generator: it runs eagerly",
    advice=lambda graph_break, reason: one_of("compile the body of one iteration, not the generator"),
)
