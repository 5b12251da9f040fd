"""Rule DX301: a function reached a recompile limit and runs eagerly; `findings/limits.py` creates the findings."""

from __future__ import annotations

from dynx.advice.rule import Rule

RULE = Rule(id="DX301", title="too many recompiles: runs eagerly")
