"""Rule DX403: a graph missed the caches on disk because a symbol has another name than in an earlier graph."""

from __future__ import annotations

from dynx.advice.facts.renamed import renamed
from dynx.advice.rule import RunRule

RULE = RunRule(
    id="DX403", title="a graph missed the caches because a symbol has another name", find=lambda run: renamed(run, "DX403")
)
