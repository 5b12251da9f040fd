"""Explain a recompile in which all guards of an entry hold: with guard collectives, torch recompiles in all ranks or in none."""

from __future__ import annotations

from collections.abc import Mapping
from types import CodeType
from typing import Any

from dynx._torch.cache.entries import entries_of
from dynx.records import Location, Reason


def without_failed_guard(code: CodeType, locals: Mapping[str, Any], call_site: Location | None) -> Reason | None:
    """Return a reason if an entry accepts the call and the process is one of several ranks, else None."""
    from torch import distributed

    ranks = distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1
    entry = next((entry for entry in entries_of(code) if ranks > 1 and entry.guards.check(dict(locals))), None)
    if entry is None:
        return None
    return Reason("held", "guards", "hold", f"one of {ranks} ranks", call_site, against=entry.compile_id)
