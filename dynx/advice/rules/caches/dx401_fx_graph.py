"""Rule DX401: a graph bypasses the FX graph cache, so that its compiled kernels are not cached on disk."""

from __future__ import annotations

from dynx.advice.facts.bypasses import bypasses
from dynx.advice.rule import RunRule

_ADVICE = "implement uuid() in the custom pass, or remove what has no cache key"

RULE = RunRule(
    id="DX401",
    title="the compiled kernels are not cached on disk",
    find=lambda run: bypasses(run, "fx_graph", "DX401", _ADVICE),
)
