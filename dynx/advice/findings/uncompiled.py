"""Add to findings how long the functions ran uncompiled that torch gave up because of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from dynx.advice.findings.roots import OfBreaks, OfCauses
from dynx.advice.rule import is_caused_by
from dynx.records.eager_time import FEWEST_SAMPLES
from dynx.records.finding import Finding
from dynx.records.location import Location
from dynx.records.run_records import RunRecords


def of_limits(found: Sequence[OfCauses], run: RunRecords) -> list[OfCauses]:
    """Return findings about recompile limits with the time that their functions ran uncompiled."""
    functions = [{recompile.location for cause in each.causes for recompile in cause.recompiles} for each in found]
    pairs = zip(found, functions, strict=True)
    return [each._replace(finding=_with_times(each.finding, own, run)) for each, own in pairs]


def of_breaks(found: Iterable[OfBreaks], run: RunRecords) -> list[OfBreaks]:
    """Return findings about graph breaks with the time that functions ran uncompiled which torch could not resume there."""
    skipped = [compile for compile in run.compiles if compile.outcome == "skipped"]
    return [
        each._replace(
            finding=_with_times(
                each.finding,
                {compile.location for compile in skipped if any(is_caused_by(compile, known) for known in each.breaks)},
                run,
            )
        )
        for each in found
    ]


def _with_times(finding: Finding, functions: Collection[Location], run: RunRecords) -> Finding:
    times = [time for time in run.eager_times if time.location in functions and time.samples >= FEWEST_SAMPLES]
    return replace(
        finding,
        uncompiled_seconds=sum(time.seconds for time in times),
        uncompiled_share=min(1.0, sum(time.share for time in times)),
    )
