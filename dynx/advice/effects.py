"""Advice rules DX8xx: mutations that compiled code does not repeat, so that objects keep their old values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from dynx.advice.names import spoken
from dynx.advice.rule import Rule, RuleAtLine
from dynx.records.effects import Effect, FrameEffects
from dynx.records.finding import Finding

LOST = Rule("DX801", "a mutation is lost in compiled code")
FULL_DEQUE = Rule("DX802", "a full deque keeps the wrong items in compiled code")
NOT_REPLAYED = Rule("DX803", "no mutation is repeated: replay_side_effects is off")
RULES = (LOST, FULL_DEQUE, NOT_REPLAYED)

_IN_PLACE = re.compile(r"[+*|&^-]=|__i\w+__|\bi(?:add|concat|mul|or|and|sub|xor)\(")
_MAXLEN = re.compile(r", maxlen=(\d+)\)$")
_OUTSIDE = "or put the line in a function with @torch.compiler.disable"
_HOLD = f"hold a built-in container in an attribute instead of subclassing it, {_OUTSIDE}"


def find(frames: Iterable[FrameEffects]) -> tuple[Finding, ...]:
    """Return the findings for side effects that compiled code loses: one for each rule and source line.

    Their cost is given as 0 seconds: what they cost is a wrong value (`Finding.wrong`).
    """
    merged: dict[RuleAtLine, Finding] = {}
    for frame in frames:
        for finding in _findings(frame):
            key = RuleAtLine(finding.rule, finding.location.file, finding.location.line)
            first = merged.get(key)
            merged[key] = finding if first is None else replace(first, count=first.count + 1)
    return tuple(merged.values())


def _findings(frame: FrameEffects) -> Iterator[Finding]:
    lost = [effect for effect in frame.effects if effect.is_lost]
    if lost and not frame.replays:
        names = ", ".join(dict.fromkeys(spoken(effect.source) for effect in lost[:5]))
        yield Finding(
            NOT_REPLAYED.id,
            f"{frame.location.function} does not repeat its mutations in compiled code: {names}",
            frame.location,
            0.0,
            tuple(map(_change, lost[:5])),
            "set torch._dynamo.config.replay_side_effects = True, which is torch's default",
            wrong=True,
        )
        return
    for effect in lost:
        rule, title, advice = _full_deque(effect) if _MAXLEN.search(effect.before) else _lost(effect)
        yield Finding(rule.id, title, effect.location or frame.location, 0.0, tuple(_evidence(effect)), advice, wrong=True)


def _lost(effect: Effect) -> tuple[Rule, str, str]:
    title = f"{spoken(effect.source)} keeps {effect.before or 'its old value'}: compiled code does not store {effect.after}"
    if "move_to_end" in effect.code and "last=" in effect.code:
        advice = f"{_OUTSIDE[3:4].upper()}{_OUTSIDE[4:]}"
    elif "move_to_end" in effect.code:
        advice = "write d[key] = d.pop(key), which compiled code repeats"
    elif effect.source.startswith("a new "):
        advice = f"use the built-in container, {_OUTSIDE}"
    elif _IN_PLACE.search(effect.code):
        advice = f"call a method such as extend() or update(); if that is lost too, {_HOLD}"
    else:
        advice = f"{_HOLD[0].upper()}{_HOLD[1:]}"
    return LOST, title, advice


def _full_deque(effect: Effect) -> tuple[Rule, str, str]:
    match = _MAXLEN.search(effect.before)
    maxlen = match[1] if match else "?"
    name = spoken(effect.source)
    title = f"{name} has maxlen={maxlen}, which compiled code applies too late: it keeps the last {maxlen} items"
    return FULL_DEQUE, title, f"use a list and cut it: items.append(item); del items[:-{maxlen}], {_OUTSIDE}"


def _evidence(effect: Effect) -> Iterator[str]:
    yield _change(effect)
    if effect.announced:
        yield "Dynamo noted the mutation, and wrote no bytecode that repeats it"
    else:
        yield "Dynamo changed its copy of the object without noting a mutation, so it wrote no bytecode for it"
    if len(effect.stack) > 1:
        yield "reached through " + " > ".join(map(str, effect.stack))


def _change(effect: Effect) -> str:
    return f"{spoken(effect.source)} is {effect.before or '?'} before, and {effect.after} in Dynamo's copy of it"
