"""Rule DX303: after a call without tensor operations, torch runs a compiled function eagerly."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dynx.advice.facts.names import spoken
from dynx.advice.rule import RunRule, one_of
from dynx.records.finding import Finding
from dynx.records.location import Location
from dynx.records.recompile import Recompile
from dynx.records.run_records import RunRecords


def _find(run: RunRecords) -> Iterable[Finding]:
    """Return a finding for each function that was compiled, and that torch skips since a call for which it had to recompile."""
    ended = {compile.key: compile for compile in run.ended}
    for recompile in run.recompiles:
        if (compile := ended.get(recompile.key)) is not None:
            yield Finding(
                RULE.id,
                f"a call without tensor operations ends compiling: {_when(recompile)}torch runs each later call eagerly",
                _location(recompile),
                recompile.seconds,
                (compile.reason or "", "later calls do not use the compiled code either"),
                "",
                called_from=compile.called_from.own if compile.called_from is not None else None,
            ).advised(_ADVICE)


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


_SIZE = re.compile(r"\.size\(\)\[(\d+)\]$")
_ADVICE = one_of(
    "decide outside the compiled function, and do not call it in this case",
    "return a copy in this case, such as x.clone(): a graph with one operation is compiled as others are",
).alternatives
RULE = RunRule(id="DX303", title="a call without tensor operations: runs eagerly from then on", find=_find)
