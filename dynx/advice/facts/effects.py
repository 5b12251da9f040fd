"""Helpers of the rules on wrong values: mutations that compiled code does not repeat, values that it keeps."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from dynx.advice.facts.names import spoken
from dynx.records.effects import Effect, FrameEffects
from dynx.records.finding import Alternative, Finding
from dynx.records.run_records import RunRecords
from dynx.records.unguarded import ReadKind, StaleValue

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


def stale_findings(
    run: RunRecords,
    rule: str,
    kinds: tuple[ReadKind, ...],
    title: Callable[[StaleValue], str],
    alternatives: Callable[[StaleValue], Iterator[Alternative]],
) -> Iterator[Finding]:
    """Yield a finding for each stale value of some kinds; its seconds are 0, because the cost is a wrong value, not time."""
    for stale in run.stale_values:
        if stale.kind in kinds:
            location = stale.read_at or stale.location
            found = Finding(rule, title(stale), location, 0.0, tuple(_evidence(stale)), "", wrong=True)
            yield found.advised(alternatives(stale))


def _evidence(stale: StaleValue) -> Iterator[str]:
    function = stale.location.function
    calls = "1 call" if stale.calls == 1 else f"{stale.calls} calls"
    yield f"{calls} of {function} ran the old code after the change: each of its guards held"
    if stale.seen is not None:
        yield f"the change was noticed before the call at {stale.seen}"
    yield f"{function} has read it at {stale.read_at or stale.location}, when it was traced"


def compiled_again(stale: StaleValue, when: str = "after the change") -> Alternative:
    """Return the alternative that works for every value."""
    return Alternative(f"call dynx.guards.reset({stale.location.function}) {when}, which compiles it again at the next call")


def named(stale: StaleValue) -> str:
    """Return what was read, as the user writes it."""
    return spoken(stale.text)
