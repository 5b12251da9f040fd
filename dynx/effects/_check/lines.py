"""Find the line of the user that a difference is about: of the last mutation of the object, or of the exception."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from types import CodeType
from typing import Any

from dynx._torch.compilation.unwrap import unwrap
from dynx.effects._check.compare import is_below
from dynx.records.check import Diff
from dynx.records.effects import Effect, FrameEffects
from dynx.records.location import Location
from dynx.records.record import Record

# how Dynamo names what it compiles through a wrapper, such as a callable object, and how differences do
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
    """Return the differences with the lines of the mutations; a difference that has a line keeps it.

    Args:
        diffs: The differences of a check.
        records: What was recorded of the compilations, with `FrameEffects` among them.
        fn: The function that is checked.
    """
    names = _Names(fn)
    effects = [(path, effect) for effect in _effects(records) for path in names.paths_of(effect)]
    return tuple(diff if diff.location is not None else replace(diff, location=_line_of(diff.path, effects)) for diff in diffs)


def _effects(records: Iterable[Record]) -> Iterator[Effect]:
    """Yield all side effects that have a line: first those that are repeated, then those that are lost, the first one last."""
    found = [effect for record in records if isinstance(record, FrameEffects) for effect in record.effects]
    known = [effect for effect in found if effect.location is not None]
    yield from (effect for effect in known if not effect.is_lost)
    yield from (effect for effect in reversed(known) if effect.is_lost)


def _line_of(path: str, effects: Sequence[tuple[str, Effect]]) -> Location | None:
    """Return the line of the last effect with the longest path that leads to a difference, or that lies below it."""
    above = [(len(source), index) for index, (source, _) in enumerate(effects) if source == path or is_below(path, source)]
    below = [(0, index) for index, (source, _) in enumerate(effects) if is_below(source, path)]
    best = max(above or below, default=None)
    return None if best is None else effects[best[1]][1].location


class _Names:
    """The names of a function's variables, of which Dynamo's sources consist after a graph break."""

    def __init__(self, fn: Any) -> None:
        unwrapped = unwrap(fn)
        code: CodeType | None = unwrapped.code
        self._free = code.co_freevars if code is not None else ()
        self._parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount] if code is not None else ()
        is_bound = unwrapped.module is not None or unwrapped.bound_self is not None
        self._positional = ("self",) if is_bound else ()

    def paths_of(self, effect: Effect) -> Iterator[str]:
        """Yield the paths at which a difference of the mutated object may be."""
        source = effect.source
        match = _LOCAL.match(source)
        name = match[1] if match is not None else source if effect.kind == "cell" else None
        if name is not None and name in (*self._free, *self._parameters):
            yield from self._paths_of_variable(name, source[match.end() :] if match is not None else "")
            return
        if (cell := _CELL.match(source)) is not None and int(cell[1]) < len(self._free):
            yield f"closure.{self._free[int(cell[1])]}{source[cell.end() :]}"
            return
        for pattern, path in _OF_THE_CALL:
            path, is_found = pattern.subn(path, source)
            if is_found:
                yield path
                yield path.removeprefix("globals.")  # attributes of classes and modules
                return

    def _paths_of_variable(self, name: str, more: str) -> Iterator[str]:
        if name in self._free:
            yield f"closure.{name}{more}"
        else:
            index = self._parameters.index(name)
            places = [*self._positional, *(f"args[{number}]" for number in range(len(self._parameters)))]
            yield f"{places[index]}{more}"
            yield f"kwargs.{name}{more}"
