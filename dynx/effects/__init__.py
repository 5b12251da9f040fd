"""Side effects of compiled functions: list them, and check whether compiled code has the same ones as eager code.

`dynx.watch().side_effects` lists the mutations that Dynamo traced, and whether compiled code repeats each of them. `check`
runs a function eagerly and compiled, and compares all results and mutations.
"""

from __future__ import annotations

from dynx.effects._check.check import check
from dynx.records.check import CheckReport, Diff, Leak
from dynx.records.effects import Effect, FrameEffects, Modified, Mutation

__all__ = ["CheckReport", "Diff", "Effect", "FrameEffects", "Leak", "Modified", "Mutation", "check"]
