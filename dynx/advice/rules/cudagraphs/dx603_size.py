"""Rule DX603: a size depends on the values of a tensor, which cannot be captured in a CUDA graph."""

from __future__ import annotations

from dynx.advice.facts.skips import skips
from dynx.advice.rule import RunRule

RULE = RunRule(id="DX603", title="a size depends on tensor values", find=lambda run: skips(run, "size", "DX603"))
