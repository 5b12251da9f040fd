"""Rules: pure functions from what happened to what to change. One file per family, no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dynx.advice import breaks, caches, cudagraphs, limits, recompiles
from dynx.advice.pages import page
from dynx.advice.recompiles import spoken
from dynx.advice.rule import Rule, first_match
from dynx.records.finding import Finding

if TYPE_CHECKING:
    from dynx.records.graph_break import GraphBreak
    from dynx.records.recompile import Reason
    from dynx.records.run import Run

__all__ = ["RULES", "advise", "page", "rule_of_break", "rule_of_reason", "spoken"]

RULES: Mapping[str, Rule] = {
    rule.id: rule
    for rule in sorted(
        (*recompiles.RULES, *breaks.RULES, *limits.RULES, *caches.RULES, *cudagraphs.RULES), key=lambda rule: rule.id
    )
}


def advise(run: Run) -> tuple[Finding, ...]:
    """Give the findings of a run, most expensive first.

    A function that gave up is one finding with its cause's advice, not two.
    """
    causes = recompiles.causes(run.recompiles, run.dynamic)
    found: list[Finding] = []
    used_up = set()
    for gave_up in run.gave_up:
        cause = limits.cause_of(gave_up, causes)
        used_up.add(id(cause))
        found.append(limits.find(gave_up, cause))
    found += recompiles.find_all(cause for cause in causes if id(cause) not in used_up)
    found += breaks.find(run.graph_breaks, run.compiles)
    found += caches.find(run.caches, run.compiles)
    found += cudagraphs.find(run.cudagraph_skips, run.address_changes)
    return tuple(sorted(found, key=lambda finding: -finding.seconds))


def rule_of_reason(reason: Reason) -> str | None:
    """Name the rule that applies to a failed guard."""
    rule = first_match(recompiles.RULES, reason)
    return rule.id if rule is not None else None


def rule_of_break(found: GraphBreak) -> str | None:
    """Name the rule that applies to a graph break."""
    rule = breaks.rule_of(found)
    return rule.id if rule is not None else None
