"""DX406: a graph missed the caches on disk because `dynx.symbols.install` named the symbols of only one of two graphs."""

from __future__ import annotations

from collections.abc import Iterator

from dynx.advice.facts.renamed import renamed
from dynx.advice.rule import RunRule
from dynx.records.finding import Finding
from dynx.records.run_records import RunRecords


def _find(run: RunRecords) -> Iterator[Finding]:
    return (graph.finding(RULE.id) for graph in renamed(run) if graph.is_scheme)


RULE = RunRule(id="DX406", title="a graph missed the caches because its symbols are named by another scheme", find=_find)
