"""Advice rules: each detects one problem in the records of a run, such as a recompile, and says how to avoid it.

The rules are pure functions of the records, one file per family of rules, and import no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dynx.advice import breaks, caches, cudagraphs, effects, limits, recompile_rules, recompiles, saved, tried
from dynx.advice.breaks import rules as break_rules
from dynx.advice.caches import profiles, renamed
from dynx.advice.names import spoken
from dynx.advice.pages import page
from dynx.advice.rule import Rule, first_match
from dynx.records.finding import Finding

if TYPE_CHECKING:
    from dynx.records.graph_break import GraphBreak
    from dynx.records.recompile import Reason
    from dynx.records.run_records import RunRecords

__all__ = ["RULES", "advise", "page", "rule_of_break", "rule_of_reason", "spoken"]

RULES: Mapping[str, Rule] = {
    rule.id: rule
    for rule in sorted(
        (
            *recompile_rules.RULES,
            *break_rules.RULES,
            *limits.RULES,
            *caches.RULES,
            renamed.RENAMED,
            renamed.SCHEMES,
            profiles.CLOSURE,
            profiles.SPECIALIZED,
            *cudagraphs.RULES,
            *saved.RULES,
            *effects.RULES,
        ),
        key=lambda rule: rule.id,
    )
}


def advise(run: RunRecords) -> tuple[Finding, ...]:
    """Apply all advice rules to a run and return a finding for each problem: location, cost and advice.

    Findings of wrong values come first, then the most expensive. A function that reached a recompile limit yields one finding,
    which includes the advice for the recompiles that caused it.
    """
    dynamic = tuple(change for change in run.dynamic if change.profile is None)
    causes = recompiles.causes(run.recompiles, dynamic, run.specialized, run.compiles, run.graph_breaks)
    at_limit, included = limits.find_all(run.gave_up, causes)
    findings = [*at_limit, *limits.find_failures(run.compiles, run.graph_breaks)]
    inside = breaks.inside_libraries((cause for cause in causes if id(cause) not in included), run.graph_breaks)
    included.update(map(id, inside))
    findings += recompiles.find_all(cause for cause in causes if id(cause) not in included)
    findings += breaks.find(run.graph_breaks, run.compiles, inside)
    findings += caches.find(run.caches, run.compiles)
    findings += renamed.find(run.cache_keys, run.cache_settings, run.caches, run.compiles)
    findings += profiles.find(run.profile_misses, run.specialized)
    findings += cudagraphs.find(run.cudagraph_skips, run.address_changes)
    findings += saved.find(run.saved)
    findings += effects.find(run.side_effects)
    trials = run.trials
    tested = (tried.with_trials(finding, trials) for finding in findings)
    return tuple(sorted(tested, key=lambda finding: finding.rank))


def rule_of_reason(reason: Reason) -> str | None:
    """Return the id of the advice rule that applies to a failed guard, such as "DX102", or None."""
    rule = first_match(recompile_rules.RULES, reason)
    return rule.id if rule is not None else None


def rule_of_break(graph_break: GraphBreak) -> str | None:
    """Return the id of the advice rule that applies to a graph break, such as "DX201", or None."""
    rule = break_rules.rule_of(graph_break)
    return rule.id if rule is not None else None
