"""Rule DX113: recompiles of an optimizer step because a setting of the optimizer changes, such as the learning rate."""

from __future__ import annotations

import re

from dynx.advice.facts.reasons import CONTAINER
from dynx.advice.rule import Advice, Cause, RecompileRule, one_of

_GROUP = re.compile(r"param_groups\[\d+\]\['(?P<name>\w+)'\]")
_OF_MOMENTUM = ("betas", "momentum")  # schedulers replace these by floats, even if they were tensors


def _advice(cause: Cause) -> Advice:
    setting = _GROUP.search(cause.first.source)
    name = setting["name"] if setting is not None else ""
    if name in _OF_MOMENTUM:
        return one_of("call step() uncompiled", "create OneCycleLR or CyclicLR with cycle_momentum=False, if it changes it")
    if name == "lr":
        return one_of("call step() uncompiled", "create the optimizer with lr=torch.tensor(...)")
    return one_of("call step() uncompiled", f"set {name or 'it'} before the first call")


RULE = RecompileRule(
    id="DX113",
    title="an optimizer setting changes inside the compiled step",
    priority=3,  # whatever kind of value the setting is
    applies=lambda reason: reason.holder == "optimizer" and reason.kind not in CONTAINER,
    advice=_advice,
)
