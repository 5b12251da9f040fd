"""Rule DX218: a graph break at a recurrent layer (RNN, GRU, LSTM), which Dynamo does not trace by default."""

from __future__ import annotations

from dynx.advice.facts.breaks import code_of
from dynx.advice.rule import BreakRule, one_of
from dynx.records.graph_break import GraphBreak


def _applies(graph_break: GraphBreak) -> bool:
    return "allow_rnn" in " ".join((graph_break.explanation, *graph_break.hints))


RULE = BreakRule(
    id="DX218",
    title="a recurrent layer is called",
    priority=1,  # before DX204: torch 2.15 uses the name of untraced functions for it
    applies=_applies,
    title_of=lambda graph_break: f"Dynamo does not trace RNN, GRU and LSTM by default{code_of(graph_break)}",
    # no allow_rnn: it unrolls the layer, again for each length and without a state: in most programs compiling costs more
    advice=lambda graph_break: one_of("call the layer outside the compiled function, which compiles what is around it"),
)
