"""Advice rules DX6xx: operations that `dynx.cudagraphs` runs without capture, and parameters that it copies on each call."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dynx.advice.rule import Rule, RuleAtLine
from dynx.records.cudagraphs import AddressChange, Skip
from dynx.records.finding import Finding

OPERATOR = Rule("DX601", "an operator cannot be captured")
VALUE = Rule("DX602", "a tensor's value is read")
SIZE = Rule("DX603", "a size depends on tensor values")
LIMIT = Rule("DX604", "more recordings are needed than max_recordings")
ADDRESS = Rule("DX605", "a parameter has a new address on each call")
CAPTURE = Rule("DX606", "a capture failed")
RULES = (OPERATOR, VALUE, SIZE, LIMIT, ADDRESS, CAPTURE)
_OF_KIND = {"operator": OPERATOR, "value": VALUE, "size": SIZE, "limit": LIMIT, "capture": CAPTURE}


def find(skips: Iterable[Skip], changes: Iterable[AddressChange]) -> tuple[Finding, ...]:
    """Return the findings for uncaptured operations and copied parameters: one for each rule and source line.

    Their cost is given as 0 seconds, because it is not measured.
    """
    findings = [
        Finding(_OF_KIND[skip.kind].id, skip.reason, skip.location, 0.0, (), skip.advice, skip.count)
        for skip in skips
        if skip.location is not None and skip.kind in _OF_KIND  # a newer dynx may know others
    ]
    findings += [
        Finding(
            ADDRESS.id,
            f"{change.name} often has a new address: it is copied on each call",
            change.location,
            0.0,
            (f"from {change.before:#x} to {change.after:#x}",),
            "update it in place with copy_; without gradients, params='patch'",
        )
        for change in changes
        if change.is_copied and change.location is not None
    ]
    merged: dict[RuleAtLine, Finding] = {}
    for finding in findings:
        key = RuleAtLine(finding.rule, finding.location.file, finding.location.line)
        first = merged.get(key)
        merged[key] = finding if first is None else replace(first, count=first.count + finding.count)
    return tuple(merged.values())
