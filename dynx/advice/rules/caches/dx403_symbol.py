"""DX403: a graph missed the caches on disk because a symbol has another name than in an earlier graph."""

from __future__ import annotations

from collections.abc import Iterator

from dynx.advice.facts.renamed import renamed
from dynx.advice.rule import RunRule
from dynx.records.finding import Finding
from dynx.records.run_records import RunRecords


def _find(run: RunRecords) -> Iterator[Finding]:
    return (graph.finding(RULE.id) for graph in renamed(run) if not graph.is_scheme)


RULE = RunRule(id="DX403", title="a graph missed the caches because a symbol has another name", find=_find)
