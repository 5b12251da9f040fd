"""Rule DX704: a `saved.rule` of the user applies to no saved tensor."""

from __future__ import annotations

from collections.abc import Iterator

from dynx.advice.rule import RunRule
from dynx.records.finding import Finding
from dynx.records.run_records import RunRecords
from dynx.records.saved import SavedGraph


def _find(run: RunRecords) -> Iterator[Finding]:
    """Yield a finding for each function with a `saved.rule` that applies to no saved tensor of any of its graphs."""
    by_function: dict[tuple[str, int], list[SavedGraph]] = {}
    for graph in run.saved:
        if graph.hooks and graph.location is not None:
            by_function.setdefault((graph.location.file, graph.location.line), []).append(graph)
    for compiled in by_function.values():
        location = compiled[0].location
        unused = [rule for rule in compiled[0].unused_rules if all(rule in graph.unused_rules for graph in compiled)]
        if unused and location is not None:
            packable = (tensor for graph in compiled for tensor in graph.tensors if tensor.kind in ("activation", "output"))
            why = {tensor.why for tensor in packable if tensor.why}
            yield Finding(
                RULE.id,
                f"{unused[0]} applies to no saved tensor of {location.function}",
                location,
                0.0,
                tuple(sorted(why)[:5]),
                "see saved.report for the names, modules and lines of what is saved; or drop the rule",
            )


RULE = RunRule(id="DX704", title="a rule for saved tensors applies to none", find=_find)
