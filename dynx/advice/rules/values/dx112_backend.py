"""Rule DX112: recompiles because a function is compiled again with another backend object."""

from __future__ import annotations

from dynx.advice.facts.reasons import has_kind
from dynx.advice.rule import Advice, Cause, RecompileRule, expected, one_of
from dynx.records.fix import Fix


def _are_different(cause: Cause) -> bool:
    """Return whether the backends of all compilations have different names."""
    names = [cause.first.expected, *(recompile.reasons[0].got for recompile in cause.recompiles)]
    return len(set(names)) == len(names)


def _advice(cause: Cause) -> Advice:
    if _are_different(cause):
        return expected("one compile per backend is expected; to avoid it, compile the function with one backend")
    return one_of("create the backend once and pass the same object")


RULE = RecompileRule(
    id="DX112",
    title="a new backend object on every compile",
    applies=has_kind("backend"),
    advice=_advice,
    fixes=lambda cause: [] if _are_different(cause) else [Fix("option", "dynx.compile")],
)
