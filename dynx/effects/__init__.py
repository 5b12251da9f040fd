"""Side effects of compiled functions: mutations, and whether compiled code does what eager code does.

`dynx.watch().side_effects` has what Dynamo traced: each mutation, and whether compiled code repeats it. `check` runs a
function eagerly and compiled, and compares all results and mutations.
"""

from __future__ import annotations

from dynx.effects._check.check import check
from dynx.records.check import CheckReport, Diff, Leak
from dynx.records.effects import Effect, FrameEffects, Modified, Mutation

__all__ = [
    "CheckReport",
    "Diff",
    "Effect",
    "FrameEffects",
    "Leak",
    "Modified",
    "Mutation",
    "check",
]
