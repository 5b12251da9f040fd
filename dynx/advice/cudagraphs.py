"""DX6xx: what dynx.cudagraphs runs uncaptured, or copies on each call."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dynx.advice.rule import Rule
from dynx.records.cudagraphs import AddressChange, Skip
from dynx.records.finding import Finding

OPERATOR = Rule("DX601", "an operator cannot be captured")
VALUE = Rule("DX602", "a value of a tensor is read")
SIZE = Rule("DX603", "a size depends on values")
LIMIT = Rule("DX604", "more recordings are needed than are allowed")
MOVES = Rule("DX605", "a parameter lies somewhere else in each call")
CAPTURE = Rule("DX606", "a capture failed")
RULES = (OPERATOR, VALUE, SIZE, LIMIT, MOVES, CAPTURE)
_OF_KIND = {"operator": OPERATOR, "value": VALUE, "size": SIZE, "limit": LIMIT, "capture": CAPTURE}


def find(skips: Iterable[Skip], moves: Iterable[AddressChange]) -> tuple[Finding, ...]:
    """Give one finding for each rule and line. What it costs is not known: nothing is measured."""
    found = [
        Finding(_OF_KIND[each.kind].id, each.reason, each.location, 0.0, (), each.advice, each.count)
        for each in skips
        if each.location is not None
    ]
    found += [
        Finding(
            MOVES.id,
            f"{each.name} moves often: it is copied on each call",
            each.location,
            0.0,
            (f"from {each.before:#x} to {each.after:#x}",),
            "leave it where it is, with copy_; without gradients, params='patch'",
        )
        for each in moves
        if each.is_copied and each.location is not None
    ]
    merged: dict[tuple[object, ...], Finding] = {}
    for finding in found:
        key = (finding.rule, finding.location.file, finding.location.line)
        known = merged.get(key)
        merged[key] = finding if known is None else replace(known, count=known.count + finding.count)
    return tuple(merged.values())
