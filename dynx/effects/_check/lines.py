"""Find the user's line that caused a difference: the line of the last mutation of the object.

Differences name an object by its path (`closure.total`); Dynamo's side effects name it by its source (`L['x']`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from dynx._torch.compilation.unwrap import Unwrapped, unwrap
from dynx.effects._check.compare import is_below
from dynx.records.check import Diff
from dynx.records.effects import Effect, FrameEffects
from dynx.records.location import Location
from dynx.records.record import Record

# sources of Dynamo, also for functions that it compiles through a wrapper, and the paths of differences
_OF_THE_CALL = (
    (re.compile(r"^L\['(args)'\]"), r"\1"),
    (re.compile(r"^L\['(kwargs)'\]\['(\w+)'\]"), r"\1.\2"),
    (re.compile(r"^L\['fn'\]\.__self__"), "self"),
    (re.compile(r"^L\['fn'\]\.(__(?:kw)?defaults__)"), r"function.\1"),
    (re.compile(r"^L\['fn'\](?=\.)"), "self"),
    (re.compile(r"^G\['__import_\w+'\]\."), "globals."),
    (re.compile(r"^G\['(\w+)'\]"), r"globals.\1"),
)
_CELL = re.compile(r"^L\['fn'\](?:\.__func__)?\.__closure__\[(\d+)\]\.cell_contents")
_LOCAL = re.compile(r"^L\['(\w+)'\]")


def with_lines(diffs: Iterable[Diff], records: Sequence[Record], fn: Any) -> tuple[Diff, ...]:
    """Add a line to each difference that has none: the line of the side effect that mutated the object, if it is known.

    `records` describe the compilations of `fn`; the `FrameEffects` among them list the side effects with their lines.
    """
    unwrapped = unwrap(fn)
    effects = [(path, effect) for effect in _effects(records) for path in _paths_of(effect, unwrapped)]
    return tuple(diff if diff.location is not None else replace(diff, location=_line_of(diff.path, effects)) for diff in diffs)


def _effects(records: Iterable[Record]) -> Iterator[Effect]:
    """Yield side effects with a known line: first those that compiled code performs, then those it loses, in reverse order.

    If several fit equally well, `_line_of` takes the last: the first mutation that compiled code loses, if it loses any.
    """
    found = [effect for record in records if isinstance(record, FrameEffects) for effect in record.effects]
    known = [effect for effect in found if effect.location is not None]
    yield from (effect for effect in known if not effect.is_lost)
    yield from (effect for effect in reversed(known) if effect.is_lost)


def _line_of(path: str, effects: Sequence[tuple[str, Effect]]) -> Location | None:
    """Return the line of the side effect that changed the object at `path`; None if no effect did.

    `effects` are pairs of path and side effect. An effect on the object itself is preferred, then one on the nearest object
    that contains it, then one on any object inside of it. If several of these rank equally, the last one is taken.
    """
    above = [(len(source), index) for index, (source, _) in enumerate(effects) if source == path or is_below(path, source)]
    below = [(0, index) for index, (source, _) in enumerate(effects) if is_below(source, path)]
    best = max(above or below, default=None)
    return None if best is None else effects[best[1]][1].location


def _paths_of(effect: Effect, fn: Unwrapped) -> Iterator[str]:
    """Yield the paths, such as `args[0]` or `kwargs.x`, by which a difference may name the object that `effect` changed."""
    source, code = effect.source, fn.code
    free = code.co_freevars if code is not None else ()
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount] if code is not None else ()
    match = _LOCAL.match(source)
    name = match[1] if match is not None else source if effect.kind == "cell" else None
    more = source[match.end() :] if match is not None else ""
    if name in free:
        yield f"closure.{name}{more}"
    elif name in parameters:
        is_bound = fn.module is not None or fn.bound_self is not None
        index = parameters.index(name) - is_bound
        yield f"{'self' if index < 0 else f'args[{index}]'}{more}"
        yield f"kwargs.{name}{more}"
    elif (cell := _CELL.match(source)) is not None and int(cell[1]) < len(free):
        yield f"closure.{free[int(cell[1])]}{source[cell.end() :]}"
    else:
        for pattern, path in _OF_THE_CALL:
            path, is_found = pattern.subn(path, source)
            if is_found:
                yield path
                yield path.removeprefix("globals.")  # paths of classes and modules have no prefix
                return
