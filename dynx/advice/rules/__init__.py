"""All advice rules: the `RULE` of each module in a subfolder, if the module's name begins with "dx", such as `dx203_branch`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from pkgutil import walk_packages
from typing import TypeVar

from dynx.advice.rule import Advice, BreakRule, LossRule, PlaceRule, RecompileRule, Rule, RunRule
from dynx.records.graph_break import GraphBreak
from dynx.records.recompile import Reason

R = TypeVar("R", bound=Rule)


def _rules() -> Iterator[Rule]:
    for found in walk_packages(__path__, f"{__name__}."):
        if found.name.rpartition(".")[2].startswith("dx"):
            yield import_module(found.name).RULE


def _of_class(cls: type[R]) -> tuple[R, ...]:
    """Return the rules of one class in the order in which they are tried: highest priority first, then lowest id."""
    return tuple(sorted((rule for rule in RULES.values() if isinstance(rule, cls)), key=_order))


def _order(rule: Rule) -> tuple[int, str]:
    return -rule.priority, rule.id


RULES: Mapping[str, Rule] = {rule.id: rule for rule in sorted(_rules(), key=lambda rule: rule.id)}
RECOMPILE_RULES = _of_class(RecompileRule)
RUN_RULES = _of_class(RunRule)
LOSS_RULES = _of_class(LossRule)
_BREAK_RULES = _of_class(BreakRule)
_PLACE_RULES = _of_class(PlaceRule)


def rule_of_reason(reason: Reason) -> RecompileRule | None:
    """Return the rule that applies to a failed guard, or None."""
    return next((rule for rule in RECOMPILE_RULES if rule.applies(reason)), None)


def rule_of_break(graph_break: GraphBreak) -> BreakRule | PlaceRule | None:
    """Return the rule that applies to a graph break, or None."""
    rules: list[BreakRule | PlaceRule] = [*_PLACE_RULES, *_BREAK_RULES]
    applying = [rule for rule in rules if rule.applies(graph_break)]
    return min(applying, key=_order, default=None)


def rule_by_reason(graph_break: GraphBreak) -> BreakRule | None:
    """Return the rule about why the graph breaks, or None; ignore rules about where it breaks, even of higher priority."""
    return next((rule for rule in _BREAK_RULES if rule.applies(graph_break)), None)


def advice_of(rule: BreakRule | PlaceRule, graph_break: GraphBreak) -> Advice:
    """Return the advice of a rule that applies to a graph break."""
    return rule.advice(graph_break) if isinstance(rule, BreakRule) else rule.advice(graph_break, rule_by_reason(graph_break))
