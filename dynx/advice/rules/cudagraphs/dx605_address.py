"""Rule DX605: a parameter has a new address on each call, so that it is copied to the memory of the CUDA graph."""

from __future__ import annotations

from collections.abc import Iterator

from dynx.advice.rule import RunRule
from dynx.records.finding import Finding
from dynx.records.run_records import RunRecords


def _find(run: RunRecords) -> Iterator[Finding]:
    for change in run.address_changes:
        if change.is_copied and change.location is not None:
            yield Finding(
                RULE.id,
                f"{change.name} often has a new address: it is copied on each call",
                change.location,
                0.0,
                (f"from {change.before:#x} to {change.after:#x}",),
                "update it in place with copy_; without gradients, params='patch'",
            )


RULE = RunRule(id="DX605", title="a parameter has a new address on each call", find=_find)
