"""Advice rules: each detects one kind of problem, such as a recompile, in the records of a run, and says how to avoid it.

A finding is an occurrence of such a problem: its rule, line, cost and advice. This package is private: users read
`run.findings`. Rules are pure functions of the records and do not import torch. Each rule is a file in `rules/` whose name
begins with "dx"; `facts/` has helpers of the rules, and `findings/` groups records into findings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from dynx.advice import rules
from dynx.advice.facts.names import spoken
from dynx.advice.findings import breaks, limits, recompiles, uncompiled
from dynx.advice.findings.causes import causes
from dynx.advice.findings.roots import with_consequences
from dynx.advice.proof.tried import with_trials
from dynx.advice.rule import BreakRule, Loss
from dynx.advice.rules import LOSS_RULES, RULES, RUN_RULES
from dynx.errors import UnknownRule
from dynx.records.finding import Finding
from dynx.records.graph_break import GraphBreak
from dynx.records.recompile import Reason
from dynx.records.run_records import RunRecords
from dynx.records.saved import SavedGraph

__all__ = ["RULES", "advise", "expected_breaks", "losses", "page", "rule_of_break", "rule_of_reason", "spoken"]

_PACKAGE = Path(__file__).resolve().parent.parent
_PAGES = (_PACKAGE / "_pages", _PACKAGE.parent / "docs" / "rules")  # of the installed package, of a checkout


def advise(run: RunRecords) -> tuple[Finding, ...]:
    """Apply all advice rules to a run and return a finding for each problem: location, cost and advice.

    Findings of code that computes wrong values when compiled come first, then those that cost most compile time. A function
    that reached a recompile limit yields one finding, which includes the advice for its recompiles.
    """
    all_causes = causes(run)
    at_limit, included = limits.find_all(run.gave_up, all_causes)
    inside = breaks.inside_libraries([cause for cause in all_causes if id(cause) not in included], run.graph_breaks)
    included.update(map(id, inside))
    recompiled = recompiles.find_all(cause for cause in all_causes if id(cause) not in included)
    of_breaks = uncompiled.of_breaks(breaks.find(run, inside), run)
    findings = with_consequences(of_breaks, [*uncompiled.of_limits(at_limit, run), *recompiled])
    for rule in RUN_RULES:
        findings += _merged(rule.find(run)) if rule.is_merged else rule.find(run)
    findings += _merged(_of_losses(run.saved))
    trials = run.trials
    return tuple(sorted((with_trials(finding, trials) for finding in findings), key=lambda finding: finding.rank))


def expected_breaks(run: RunRecords) -> tuple[GraphBreak, ...]:
    """Return the graph breaks of a run that need no change, such as those of torch.optim."""
    found = ((graph_break, rules.rule_of_break(graph_break)) for graph_break in run.graph_breaks)
    return tuple(graph_break for graph_break, rule in found if isinstance(rule, BreakRule) and rule.is_expected)


def rule_of_reason(reason: Reason) -> str | None:
    """Return the id of the advice rule that applies to a failed guard, such as "DX102", or None."""
    rule = rules.rule_of_reason(reason)
    return rule.id if rule is not None else None


def rule_of_break(graph_break: GraphBreak) -> str | None:
    """Return the id of the advice rule that applies to a graph break, such as "DX201", or None."""
    rule = rules.rule_of_break(graph_break)
    return rule.id if rule is not None else None


def page(rule: str) -> str:
    """Return the documentation page of an advice rule such as "DX101", as Markdown. Raises UnknownRule if there is none."""
    if re.fullmatch(r"DX\d{3}", rule):
        for path in (folder / f"{rule}.md" for folder in _PAGES):
            if path.is_file():
                return path.read_text(encoding="utf-8")
    raise UnknownRule(f"no rule has the id {rule}\n  list all rules: dynx rule")


def losses(graph: SavedGraph) -> Iterator[tuple[str, Loss]]:
    """Yield the rule id and a `Loss` for each rule that finds tensors which `dynx.saved` stores with too little precision."""
    for rule in LOSS_RULES:
        if (loss := rule.loss(graph)) is not None:
            yield rule.id, loss


def _of_losses(graphs: Iterable[SavedGraph]) -> Iterator[Finding]:
    """Yield a finding for each loss of precision in saved tensors of graphs that were compiled under `dynx.saved.hooks`.

    The seconds of a finding are 0, because a loss of precision costs no compile time.
    """
    for graph in graphs:
        for rule, loss in losses(graph) if graph.hooks else ():
            if loss.location is not None:
                tensors = (tensor for tensor in loss.tensors[:5] if tensor.location is not None)
                evidence = tuple(f"{tensor.name} at {tensor.location}" for tensor in tensors)
                yield Finding(rule, loss.title, loss.location, 0.0, evidence, loss.advice)


def _merged(findings: Iterable[Finding]) -> Iterable[Finding]:
    """Return the findings, with those of the same rule at the same line merged into one and their counts added."""
    merged: dict[tuple[str, str, int], Finding] = {}
    for finding in findings:
        key = finding.rule, finding.location.file, finding.location.line
        first = merged.get(key)
        merged[key] = finding if first is None else replace(first, count=first.count + finding.count)
    return merged.values()
