"""Dataclasses of advice rules: id, title, a predicate that decides whether the rule applies, and the texts of its findings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dynx.records.fix import Mark
from dynx.records.graph_break import GraphBreak
from dynx.records.location import Location
from dynx.records.observed import Specialized
from dynx.records.recompile import Reason, Recompile


class FrameKey(NamedTuple):
    """Key of a compiled frame, unique in a run: frame ids repeat after `torch._dynamo.reset()`, which begins a generation."""

    generation: int
    frame: str  # frame id: "0" of the compile id "0/1"


@dataclass(frozen=True, slots=True)
class Rule:
    """An advice rule; its documentation page is `docs/rules/<id>.md`."""

    id: str
    title: str


@dataclass(frozen=True, slots=True)
class RecompileRule(Rule):
    """An advice rule about recompiles; its predicate `applies` takes the first failed guard of a recompile."""

    applies: Callable[[Reason], bool]
    advice: Callable[[Cause], str]


@dataclass(frozen=True, slots=True)
class BreakRule(Rule):
    """An advice rule about graph breaks; its predicate `applies` takes the record of a graph break."""

    applies: Callable[[GraphBreak], bool]
    title_of: Callable[[GraphBreak], str]  # the title of its finding
    advice: Callable[[GraphBreak], str]


@dataclass(frozen=True, slots=True)
class Cause:
    """Recompiles of one function that have the same cause: the same advice rule and the same changed value."""

    rule: RecompileRule
    recompiles: tuple[Recompile, ...]
    together: tuple[Mark, ...] = ()  # other sizes that changed in the same way
    varying: tuple[Mark, ...] = ()  # all sizes of arguments that changed in any recompile of the function
    called_from: Location | None = None  # of the first recompile
    fixed: Specialized | None = None  # the line that fixed the size or number to one value after it was symbolic
    after: GraphBreak | None = None  # the graph break after which the function resumes
    whole: FrameKey | None = None  # the function that this one is a part of; itself if no graph break split it
    apart: GraphBreak | None = None  # the graph break in a caller, because of which the function is compiled on its own
    allowed: int | None = None  # the recompile limit that the function reached
    first_call: Location | None = None  # the line that called the function when it was first compiled

    @property
    def first(self) -> Reason:
        """The first failed guard of the first recompile."""
        return self.recompiles[0].reasons[0]

    @property
    def last(self) -> Reason:
        """The first failed guard of the last recompile."""
        return self.recompiles[-1].reasons[0]


class RuleAtLine(NamedTuple):
    """Key by which findings are merged: an advice rule yields one finding for each source line."""

    rule: str
    file: str
    line: int


def first_match(rules: Sequence[RecompileRule], reason: Reason) -> RecompileRule | None:
    """Return the first rule that applies to a failed guard, or None."""
    return next((rule for rule in rules if rule.applies(reason)), None)
