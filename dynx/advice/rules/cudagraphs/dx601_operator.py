"""Rule DX601: `dynx.cudagraphs` cannot capture an operator in a CUDA graph."""

from __future__ import annotations

from dynx.advice.facts.skips import skips
from dynx.advice.rule import RunRule

RULE = RunRule(id="DX601", title="an operator cannot be captured", find=lambda run: skips(run, "operator", "DX601"))
