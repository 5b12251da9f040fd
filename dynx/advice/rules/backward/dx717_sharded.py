"""Rule DX717: compiled autograd captures a backward pass of `fully_shard`, whose gradients torch then does not reduce."""

from __future__ import annotations

from collections.abc import Iterator

from dynx.advice.rule import RunRule
from dynx.records.backward import BackwardCapture
from dynx.records.finding import Finding
from dynx.records.location import Location
from dynx.records.run_records import RunRecords

_FSDP = "torch/distributed/fsdp/_fully_shard/"
_ADVICE = (
    "disable compiled autograd for modules of fully_shard; passes of DistributedDataParallel can be captured, "
    'with torch._dynamo.config.optimize_ddp = "python_reducer"'
)


def is_sharded(capture: BackwardCapture) -> bool:
    """Return whether `fully_shard` registered a hook in a captured pass."""
    return any(hook.location is not None and _FSDP in hook.location.file.replace("\\", "/") for hook in capture.hooks)


def _find(run: RunRecords) -> Iterator[Finding]:
    groups: dict[Location, list[BackwardCapture]] = {}
    for capture in run.backward_captures:
        if capture.location is not None and is_sharded(capture):
            groups.setdefault(capture.location, []).append(capture)
    for location, group in groups.items():
        yield Finding(
            RULE.id,
            "each rank keeps its own gradients: a captured backward pass does not run what fully_shard does after it",
            location,
            0.0,
            tuple(f"{capture.id}: {hook}" for capture in group for hook in capture.hooks),
            _ADVICE,
            sum(capture.calls for capture in group),
        )


RULE = RunRule(id="DX717", title="gradients of fully_shard are not reduced", find=_find, is_merged=False)
