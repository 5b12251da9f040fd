"""Rule DX406: a graph missed the caches on disk because `dynx.symbols.install` named the symbols of only one of two graphs."""

from __future__ import annotations

from dynx.advice.facts.renamed import renamed
from dynx.advice.rule import RunRule

RULE = RunRule(
    id="DX406",
    title="a graph missed the caches because its symbols are named by another scheme",
    find=lambda run: renamed(run, "DX406"),
)
