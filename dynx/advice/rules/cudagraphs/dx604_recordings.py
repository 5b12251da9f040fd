"""Rule DX604: a function needs more CUDA graphs than `max_recordings` allows, since each layout of its inputs needs one."""

from __future__ import annotations

from dynx.advice.facts.skips import skips
from dynx.advice.rule import RunRule

RULE = RunRule(
    id="DX604", title="more recordings are needed than max_recordings", find=lambda run: skips(run, "limit", "DX604")
)
