"""Build records of side effects from the raw data of `dynx._torch.side_effects`."""

from __future__ import annotations

from functools import lru_cache
from typing import cast

from dynx._reading.user_location import chain_of, code_at, named, user_location
from dynx._torch.side_effects.frame_effects import RawEffect, RawFrameEffects, RawMutation
from dynx._torch.tracing.stack import RawFrame, StackParts, of_parts
from dynx.records.effects import Effect, EffectKind, FrameEffects, Mutation
from dynx.records.location import Location

_MAX_EVENTS = 1000  # mutations in one record, which is one line of a run file


def frame_record(raw: RawFrameEffects, generation: int, id: str, function: Location, site: Location | None) -> FrameEffects:
    """Return the record of the side effects of the graph with compile id `id`; `site` is the line that called `function`."""
    return FrameEffects(
        generation,
        id,
        function,
        tuple(effect_record(effect, site) for effect in raw.effects),
        tuple(_mutation(mutation, site) for mutation in raw.mutations[:_MAX_EVENTS]),
        raw.reason,
        raw.replays,
    )


def effect_record(raw: RawEffect, site: Location | None = None) -> Effect:
    """Return the record of one side effect; `site` is the line that called the compiled function."""
    location, stack = _lines(raw.stack, site)
    kind, code = cast("EffectKind", raw.kind), code_at(location)
    return Effect(raw.source, kind, raw.after, raw.before, location, stack, raw.emitted, raw.announced, raw.order, code)


def _mutation(raw: RawMutation, site: Location | None) -> Mutation:
    return Mutation(raw.source, cast("EffectKind", raw.kind), *_lines(raw.stack, site), raw.announced)


def _lines(parts: StackParts | None, site: Location | None) -> tuple[Location | None, tuple[Location, ...]]:
    """Return the innermost line of user or library code in a stack, then all of them; `site` is the call of compiled code."""
    return (None, ()) if parts is None else _lines_of_stack(of_parts(parts), site)


@lru_cache(maxsize=256)  # many mutations happen at one line
def _lines_of_stack(stack: tuple[RawFrame, ...], site: Location | None) -> tuple[Location | None, tuple[Location, ...]]:
    location = user_location(stack, site)
    return (named(location) if location is not None else None), tuple(map(named, chain_of(stack)))
