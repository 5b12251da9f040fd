"""Side effects of compiled functions: what they mutate, and whether they do what eager code does.

`record` shows what Dynamo traced: each mutation, and whether compiled code repeats it. `check` runs the function, compiled and
in eager mode, and compares everything that it returns and mutates.
"""

from __future__ import annotations

from dynx.effects._check.check import check
from dynx.effects._record import EffectLog, record
from dynx.records.check import CheckReport, Diff, Leak
from dynx.records.effects import Effect, EffectReport, FrameEffects, Modified, Mutation

__all__ = [
    "CheckReport",
    "Diff",
    "Effect",
    "EffectLog",
    "EffectReport",
    "FrameEffects",
    "Leak",
    "Modified",
    "Mutation",
    "check",
    "record",
]
