"""Rule DX606: `dynx.cudagraphs` tried to capture a CUDA graph, and the capture failed."""

from __future__ import annotations

from dynx.advice.facts.skips import skips
from dynx.advice.rule import RunRule

RULE = RunRule(id="DX606", title="a capture failed", find=lambda run: skips(run, "capture", "DX606"))
