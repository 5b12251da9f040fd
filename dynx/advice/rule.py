"""What a rule is: an id, a title, and how to see and say that it applies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dynx.records.graph_break import GraphBreak
from dynx.records.recompile import Reason, Recompile


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule; its page is `docs/rules/<id>.md`."""

    id: str
    title: str


@dataclass(frozen=True, slots=True)
class RecompileRule(Rule):
    """Applies to the guard that failed."""

    applies: Callable[[Reason], bool]
    advice: Callable[[Cause], str]


@dataclass(frozen=True, slots=True)
class BreakRule(Rule):
    """Applies to the cause of a graph break."""

    applies: Callable[[GraphBreak], bool]
    happened: Callable[[GraphBreak], str]
    advice: Callable[[GraphBreak], str]


@dataclass(frozen=True, slots=True)
class Cause:
    """Recompiles of one function for one reason."""

    rule: RecompileRule
    recompiles: tuple[Recompile, ...]
    together: tuple[str, ...] = ()  # other sizes that changed from and to the same values: `mark_dynamic(y, 0)`

    @property
    def first(self) -> Reason:
        return self.recompiles[0].reasons[0]

    @property
    def last(self) -> Reason:
        return self.recompiles[-1].reasons[0]


def first_match(rules: Sequence[RecompileRule], reason: Reason) -> RecompileRule | None:
    return next((rule for rule in rules if rule.applies(reason)), None)
