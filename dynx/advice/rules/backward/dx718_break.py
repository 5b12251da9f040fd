"""Rule DX718: code of torch, which a captured backward pass calls, breaks its graph."""

from __future__ import annotations

from dynx.advice.rule import Advice, BreakRule, expected, one_of
from dynx.records.graph_break import GraphBreak

_AOT = 'backend="aot_eager" or "inductor"'
_KNOWN = {  # the function of torch that is called: what has the pass call it, and what to do
    "Interpreter.__init__": f'compile the function that calls autograd.Function with {_AOT}, not "eager"',
    "_checkpoint_hook.": f"compile the function that calls checkpoint, with {_AOT}: its backward graph then recomputes",
    "CheckpointFunction.": f"use_reentrant=False, and compile the function that calls checkpoint, with {_AOT}",
    "call_cpp_tensor_pre_hooks": "y.register_hook(lambda gradient: kept.append(gradient)) instead of y.retain_grad()",
}


def _applies(graph_break: GraphBreak) -> bool:
    """Return whether only captured passes met the graph break, and no line of a hook or an autograd.Function reaches it."""
    if graph_break.chain or not all(id.startswith("!") for _, id in graph_break.compiles):
        return False
    callee = graph_break.callee or ""  # else a hook without Python code, such as kept.append
    return bool(graph_break.compiles) and (callee.startswith("torch.") or _known(graph_break) is not None)


def _known(graph_break: GraphBreak) -> str | None:
    return next((advice for name, advice in _KNOWN.items() if name in (graph_break.callee or "")), None)


def _title(graph_break: GraphBreak) -> str:
    return f"a captured backward pass breaks its graph in torch's own code, at a call of {graph_break.callee}()"


def _advice(graph_break: GraphBreak) -> Advice:
    known = _known(graph_break)
    return one_of(known) if known is not None else expected("expect it: Dynamo does not trace this code of torch")


RULE = BreakRule(
    id="DX718",
    title="a captured backward pass breaks its graph in torch's own code",
    priority=6,  # before rules whose advice is about a line of the program
    applies=_applies,
    title_of=_title,
    advice=_advice,
)
