"""DX301: too many recompiles: runs eagerly. Its findings include those of the recompiles: `findings/limits.py`."""

from __future__ import annotations

from dynx.advice.rule import Rule

RULE = Rule(id="DX301", title="too many recompiles: runs eagerly")
