"""Record the values whose guards torch drops: those read through the standard library, and those that a filter rejects."""

from __future__ import annotations

from typing import Any

from dynx._torch.cache.guard_failures import guard_source
from dynx._torch.unguarded.probes import Value
from dynx._torch.unguarded.read import Reads, Referent


def record_dropped(reads: Reads, source: Any) -> None:
    """Record a value by its source: torch's `Source`. It is read by the source alone."""
    text = guard_source(source)
    reads.add("guard", text, lambda: (text, Value(Referent.at(text, reads.scope), text.endswith(".__annotations__"))))
