"""Frozen plain data: what dynx saw. Nothing here imports torch."""

from __future__ import annotations

from dynx.records.compile import Attempt, Backward, Compile, GaveUp, Skipped
from dynx.records.finding import Finding
from dynx.records.graph_break import GraphBreak
from dynx.records.location import Location
from dynx.records.observed import BecameDynamic, CacheEvent, TorchWarning, Trouble
from dynx.records.recompile import Reason, Recompile
from dynx.records.record import Record
from dynx.records.run import Run

__all__ = [
    "Attempt",
    "Backward",
    "BecameDynamic",
    "CacheEvent",
    "Compile",
    "Finding",
    "GaveUp",
    "GraphBreak",
    "Location",
    "Reason",
    "Recompile",
    "Record",
    "Run",
    "Skipped",
    "TorchWarning",
    "Trouble",
]
