"""DX3xx: a function that reached a recompile limit and now runs eagerly."""

from __future__ import annotations

from dynx.advice import recompiles
from dynx.advice.rule import Cause, Rule
from dynx.records.compile import GaveUp
from dynx.records.finding import Finding

GAVE_UP = Rule("DX301", "too many recompiles: runs eagerly")
RULES = (GAVE_UP,)


def cause_of(gave_up: GaveUp, causes: tuple[Cause, ...]) -> Cause | None:
    """Return the cause that reached the limit: the one with the most recompiles of that function."""
    frame = recompiles.frame_of(gave_up)
    candidates = [cause for cause in causes if recompiles.frame_of(cause.recompiles[0]) == frame]
    return max(candidates, key=lambda cause: len(cause.recompiles), default=None)


def find(gave_up: GaveUp, cause: Cause | None) -> Finding:
    """Return the finding of a function that reached a limit, with the line and the advice of the cause."""
    limit = f"{gave_up.limit} = {gave_up.allowed}"
    if cause is None:
        return Finding(
            GAVE_UP.id,
            f"gave up: reached {limit}",
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
            f"reached {limit}; calls that match no entry run eagerly from now on",
            f"cause: {cause.rule.id}, {cause.rule.title}",
            *of_cause.evidence,
        ),
        of_cause.advice,
        of_cause.count,
    )
