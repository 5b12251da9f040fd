"""The data of a rule: id, title, the predicate that decides whether it applies, and the texts of its findings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dynx.records.graph_break import GraphBreak
from dynx.records.recompile import Reason, Recompile


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule; its page is `docs/rules/<id>.md`."""

    id: str
    title: str


@dataclass(frozen=True, slots=True)
class RecompileRule(Rule):
    """A rule about recompiles: it applies to the first failed guard of a recompile."""

    applies: Callable[[Reason], bool]
    advice: Callable[[Cause], str]


@dataclass(frozen=True, slots=True)
class BreakRule(Rule):
    """A rule about graph breaks."""

    applies: Callable[[GraphBreak], bool]
    title_of: Callable[[GraphBreak], str]  # title of the finding
    advice: Callable[[GraphBreak], str]


@dataclass(frozen=True, slots=True)
class Cause:
    """The recompiles of one function that have the same reason."""

    rule: RecompileRule
    recompiles: tuple[Recompile, ...]
    together: tuple[str, ...] = ()  # advice for other sizes that changed from and to the same values: `mark_dynamic(y, 0)`

    @property
    def first(self) -> Reason:
        """The first reason of the first recompile."""
        return self.recompiles[0].reasons[0]

    @property
    def last(self) -> Reason:
        """The first reason of the last recompile."""
        return self.recompiles[-1].reasons[0]


class RuleAtLine(NamedTuple):
    """The key by which findings are merged: one finding for each rule and line."""

    rule: str
    file: str
    line: int


def first_match(rules: Sequence[RecompileRule], reason: Reason) -> RecompileRule | None:
    """Return the first rule that applies to a failed guard."""
    return next((rule for rule in rules if rule.applies(reason)), None)
