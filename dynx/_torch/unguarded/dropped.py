"""Record the values whose guards torch drops, because they are read through the standard library."""

from __future__ import annotations

from typing import Any

from dynx._torch.cache.guard_failures import guard_source
from dynx._torch.unguarded.probes import Value
from dynx._torch.unguarded.read import Reads, Referent


def record_dropped(reads: Reads, source: Any) -> None:
    """Record the value that torch's `Source` names."""
    text = guard_source(source)
    reads.add("guard", text, lambda: (text, Value(Referent.at(text, reads.scope), text.endswith(".__annotations__"))))
