"""Rule DX801: compiled code loses a mutation: the object keeps its old value."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dynx.advice.facts.effects import OUTSIDE, evidence, lost_effects, maxlen_of
from dynx.advice.facts.names import spoken
from dynx.advice.rule import RunRule
from dynx.records.effects import Effect
from dynx.records.finding import Finding
from dynx.records.run_records import RunRecords

_IN_PLACE = re.compile(r"[+*|&^-]=|__i\w+__|\bi(?:add|concat|mul|or|and|sub|xor)\(")
_HOLD = f"hold a built-in container in an attribute instead of subclassing it, {OUTSIDE}"


def _find(run: RunRecords) -> Iterator[Finding]:
    """Yield a finding for each lost mutation; its seconds are 0, because the cost is a wrong value, not time."""
    for frame, effect in lost_effects(run):
        if maxlen_of(effect) is None:
            source, location = spoken(effect.source), effect.location or frame.location
            title = f"{source} keeps {effect.before or 'its old value'}: compiled code does not store {effect.after}"
            yield Finding(RULE.id, title, location, 0.0, tuple(evidence(effect)), _advice(effect), wrong=True)


def _advice(effect: Effect) -> str:
    if "move_to_end" in effect.code and "last=" in effect.code:
        return f"{OUTSIDE[3:4].upper()}{OUTSIDE[4:]}"
    if "move_to_end" in effect.code:
        return "write d[key] = d.pop(key), which compiled code repeats"
    if effect.source.startswith("a new "):
        return f"use the built-in container, {OUTSIDE}"
    if _IN_PLACE.search(effect.code):
        return f"call a method such as extend() or update(); if that is lost too, {_HOLD}"
    return f"{_HOLD[0].upper()}{_HOLD[1:]}"


RULE = RunRule(id="DX801", title="a mutation is lost in compiled code", find=_find)
