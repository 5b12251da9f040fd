"""DX3xx: a function that reached a recompile limit and now runs eagerly."""

from __future__ import annotations

from dynx.advice import recompiles
from dynx.advice.rule import Cause, Rule
from dynx.records.compile import GaveUp
from dynx.records.finding import Finding

GAVE_UP = Rule("DX301", "too many recompiles: runs eagerly")
RULES = (GAVE_UP,)


def cause_of(gave_up: GaveUp, causes: tuple[Cause, ...]) -> Cause | None:
    """Find what used up the limit: the cause with the most recompiles of that function."""
    frame = (gave_up.generation, gave_up.id.rpartition("/")[0])
    own = [cause for cause in causes if (cause.recompiles[0].generation, cause.recompiles[0].id.rpartition("/")[0]) == frame]
    return max(own, key=lambda cause: len(cause.recompiles), default=None)


def find(gave_up: GaveUp, cause: Cause | None) -> Finding:
    """Say that it gave up; with the cause come its line and its advice."""
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
    found = recompiles.find(cause)
    subject, last = recompiles.subject_of(cause.last), cause.last
    times = f"{gave_up.allowed} compiles" if gave_up.allowed is not None else "too many compiles"
    title = f"gave up after {times} ({cause.rule.id}): {subject} {last.expected}, now {last.got or 'another value'}"
    return Finding(
        GAVE_UP.id,
        title,
        found.location,
        found.seconds,
        (
            f"reached {limit}; new inputs run eagerly from here on",
            f"cause: {cause.rule.id}, {cause.rule.title}",
            *found.evidence,
        ),
        found.advice,
        found.count,
    )
