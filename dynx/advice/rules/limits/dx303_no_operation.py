"""Rule DX303: after a call without tensor operations, torch runs a compiled function eagerly."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dynx.advice.facts.names import spoken
from dynx.advice.rule import RunRule, one_of
from dynx.records.compile import Compile
from dynx.records.eager_time import FEWEST_SAMPLES, EagerTime
from dynx.records.finding import Finding
from dynx.records.location import Location
from dynx.records.recompile import Recompile
from dynx.records.run_records import RunRecords


def _find(run: RunRecords) -> Iterable[Finding]:
    """Yield a finding for each function that torch skips since a call without tensor operations.

    If this was the first call, there is a finding only if the function was seen running afterwards.
    """
    recompiles = {recompile.key: recompile for recompile in run.recompiles}
    times = {time.location: time for time in run.eager_times if time.samples >= FEWEST_SAMPLES}
    for compile in run.ended:
        if (recompile := recompiles.get(compile.key)) is not None:
            call = "a call without tensor operations" if compile.has_no_operation else _UNKNOWN
            what = f"{call} ends compiling: {_when(recompile)}torch runs each later call eagerly"
            yield _finding(what, _location(recompile), compile, times.get(compile.location))
    for compile in run.compiles:
        time = times.get(compile.location)
        is_of_library = compile.called_from is not None and compile.called_from.library is not None
        is_first = compile.has_no_operation and not compile.is_recompile and compile.resumes is None
        if time is not None and is_first and not is_of_library:
            what = "the first call has no tensor operation to compile: torch runs each later call eagerly"
            yield _finding(what, compile.location, compile, time)


def _finding(what: str, location: Location, compile: Compile, time: EagerTime | None) -> Finding:
    finding = Finding(
        RULE.id,
        what,
        location,
        compile.seconds,
        (compile.reason or "", *(["the compiled code of earlier calls is not used either"] if compile.is_recompile else [])),
        "",
        called_from=compile.called_from.own if compile.called_from is not None else None,
        uncompiled_seconds=time.seconds if time is not None else 0.0,
        uncompiled_share=min(1.0, time.share) if time is not None else 0.0,
    )
    return finding.advised(_ADVICE)


def _location(recompile: Recompile) -> Location:
    """Return the line that reads the value for which the call was compiled; for a size, the function."""
    reason = next(iter(recompile.reasons), None)
    is_read_there = reason is not None and reason.kind not in ("size", "shape")
    return (reason.location if reason is not None and is_read_there else None) or recompile.location


def _when(recompile: Recompile) -> str:
    reason = next(iter(recompile.reasons), None)
    if reason is None or reason.got is None:
        return ""
    subject = _SIZE.sub(r".size(\1)", spoken(reason.subject))
    return f"{subject} is {reason.got}, and "


_UNKNOWN = "a call that torch skips without a reason, most likely without tensor operations (not proven),"
_SIZE = re.compile(r"\.size\(\)\[(\d+)\]$")
_ADVICE = one_of(
    "decide outside the compiled function, and do not call it in this case",
    "return a copy in this case, such as x.clone(): a graph with one operation is compiled as others are",
).alternatives
RULE = RunRule(id="DX303", title="a call without tensor operations: runs eagerly from then on", find=_find)
