"""Rule DX402: a graph bypasses AOTAutograd's cache on disk, but not the FX graph cache."""

from __future__ import annotations

from dynx.advice.facts.bypasses import bypasses
from dynx.advice.rule import RunRule

_ADVICE = "use plain torch operations or a custom_op"

RULE = RunRule(
    id="DX402", title="the autograd cache is bypassed", find=lambda run: bypasses(run, "aot_autograd", "DX402", _ADVICE)
)
