"""Advice rules DX3xx: functions that reached a recompile limit, so that calls that match no cache entry run eagerly."""

from __future__ import annotations

from dynx.advice import recompiles
from dynx.advice.rule import Cause, Rule
from dynx.records.compile import GaveUp
from dynx.records.finding import Finding

GAVE_UP = Rule("DX301", "too many recompiles: runs eagerly")
RULES = (GAVE_UP,)


def cause_of(gave_up: GaveUp, causes: tuple[Cause, ...]) -> Cause | None:
    """Return the cause of most recompiles of a function that reached a recompile limit; None if no rule applies to them."""
    frame = recompiles.frame_of(gave_up)
    candidates = [cause for cause in causes if recompiles.frame_of(cause.recompiles[0]) == frame]
    return max(candidates, key=lambda cause: len(cause.recompiles), default=None)


def find(gave_up: GaveUp, cause: Cause | None) -> Finding:
    """Return the finding for a function that reached a recompile limit, with the location and the advice of its main cause."""
    limit = f"{gave_up.limit} = {gave_up.allowed}"
    if cause is None:
        return Finding(
            GAVE_UP.id,
            f"torch gave up compiling it: reached {limit}",
            gave_up.location,
            0.0,
            (),
            "see the recompiles of this function below",
        )
    of_cause = recompiles.find(cause)
    subject, last = recompiles.subject_of(cause.last), cause.last
    times = f"{gave_up.allowed} compiles" if gave_up.allowed is not None else "too many compiles"
    title = f"gave up after {times} ({cause.rule.id}): {subject} {last.expected}, now {last.got or 'another value'}"
    return Finding(
        GAVE_UP.id,
        title,
        of_cause.location,
        of_cause.seconds,
        (
            f"reached {limit}: from then on, calls that match no cache entry run eagerly",
            f"cause: {cause.rule.id}, {cause.rule.title}",
            *of_cause.evidence,
        ),
        of_cause.advice,
        of_cause.count,
        of_cause.called_from,
    )
