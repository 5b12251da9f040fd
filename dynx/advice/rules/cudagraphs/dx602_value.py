"""Rule DX602: the host reads the value of a tensor, which cannot be captured in a CUDA graph."""

from __future__ import annotations

from dynx.advice.facts.skips import skips
from dynx.advice.rule import RunRule

RULE = RunRule(id="DX602", title="a tensor's value is read", find=lambda run: skips(run, "value", "DX602"))
