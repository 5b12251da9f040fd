"""A run with records of many kinds, at fixed times."""

from __future__ import annotations

import pytest

from dynx import Run
from dynx.records import (
    Attempt,
    Backward,
    BecameDynamic,
    CacheEvent,
    Compile,
    GaveUp,
    GraphBreak,
    Location,
    Reason,
    Recompile,
    Skipped,
    TorchWarning,
    Trouble,
)

NET = Location("model.py", 56, "Net.forward")
STEP = Location("model.py", 58, "Net.forward")
MAIN = Location("train.py", 12, "main")
LIBRARY = Location("/env/site-packages/lib/nn/act.py", 30, "act", library="lib", caller=MAIN)


def reason(kind, source, expected, got, location, **more):
    return Reason(kind, source, expected, got, location, **more)


@pytest.fixture
def run():
    step = [
        Recompile(0, f"0/{n}", NET, (reason("value", "self.step", str(n - 1), str(n), STEP, holder="module"),), 1.0)
        for n in range(1, 8)
    ]
    last = Recompile(0, "0/8", NET, (reason("value", "self.step", "7", "8", STEP, holder="module"),), 0.25, "gave_up")
    rank = Recompile(0, "1/1", LIBRARY, (reason("other", "x", "2", "3", LIBRARY),), 0.125)
    attempts = (Attempt(0, "restarted", 0.5, "Failed to trace builtin operator"), Attempt(1, "committed", 0.5))
    phases = {"trace": 1.0, "aot": 0.0, "backend": 0.5, "guards": 0.25}
    printed = GraphBreak(
        MAIN, (MAIN,), "Failed to trace builtin operator", kind="Failed to trace builtin operator", callee="print",
        compiles=((0, "2/0"),),
    )  # fmt: skip
    events = (
        printed,
        GraphBreak(STEP, (STEP,), "A break of tomorrow", kind="A break of tomorrow"),
        Compile(0, "2/0", MAIN, "compiled", 1.75, attempts, phases, 12, 34, "eager"),
        *step,
        GaveUp(0, "0/8", NET, "recompile_limit", 8),
        last,
        rank,
        BecameDynamic("L['x']", "size 1", "128", "256", 0, "1/1", MAIN),
        CacheEvent("fx_graph", "miss", 0, "2/0", MAIN),
        Skipped(MAIN, "no tensor among its arguments"),
        TorchWarning("torch says so", "torch._dynamo", MAIN),
        Trouble("graph breaks", "this torch has none"),
        Backward(0, "2/0", 0.25),
    )
    header = {"torch": "2.13.0", "command": ["dynx", "run", "train.py"]}
    return Run(events, header, {"seconds": 31.25, "device": "cpu"})
