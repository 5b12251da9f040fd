"""Helpers of the rules on lost side effects: mutations by traced code that compiled code does not repeat."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dynx.advice.facts.names import spoken
from dynx.records.effects import Effect, FrameEffects
from dynx.records.run_records import RunRecords

OUTSIDE = "or put the line in a function with @torch.compiler.disable"
_MAXLEN = re.compile(r", maxlen=(\d+)\)$")


def lost_effects(run: RunRecords) -> Iterator[tuple[FrameEffects, Effect]]:
    """Yield pairs of a graph's record and a mutation that compiled code loses. Omit graphs with `replay_side_effects` off."""
    for frame in run.side_effects:
        if frame.replays:
            yield from ((frame, effect) for effect in frame.effects if effect.is_lost)


def maxlen_of(effect: Effect) -> str | None:
    """Return the `maxlen` of the mutated deque as text; None if the object has no `maxlen` or is not a deque."""
    match = _MAXLEN.search(effect.before)
    return match[1] if match else None


def evidence(effect: Effect) -> Iterator[str]:
    yield change(effect)
    if effect.announced:
        yield "Dynamo noted the mutation, and wrote no bytecode that repeats it"
    else:
        yield "Dynamo changed its copy of the object without noting a mutation, so it wrote no bytecode for it"
    if len(effect.stack) > 1:
        yield "reached through " + " > ".join(map(str, effect.stack))


def change(effect: Effect) -> str:
    return f"{spoken(effect.source)} is {effect.before or '?'} before, and {effect.after} in Dynamo's copy of it"
