"""What a warm call through `dynx.compile` costs more than through torch.compile: at most 2.5 microseconds.

python benchmarks/guards.py [--out benchmarks/results/guards.json]
"""

from __future__ import annotations

import sys
import time

import torch
from pairs import difference, out_option, report

import dynx

CALLS = 4000


def add(x):
    return x + 1


def also_add(x):
    return x + 1


def microseconds_a_call(compiled) -> float:
    x = torch.ones(3)
    compiled(x)
    start = time.perf_counter()
    for _ in range(CALLS):
        compiled(x)
    return (time.perf_counter() - start) / CALLS * 1e6


def main() -> int:
    torchs = torch.compile(add, backend="eager")
    ours = {
        "warm call": dynx.compile(also_add, backend="eager"),
        "warm call, guard_config=False": dynx.compile(also_add, backend="eager", guard_config=False),
    }
    measured = [
        difference(
            name,
            lambda compiled=compiled: microseconds_a_call(compiled),
            lambda: microseconds_a_call(torchs),
            bound=2.5,
            unit=" us",
        )
        for name, compiled in ours.items()
    ]
    return report("dynx.compile against torch.compile", measured, out_option())


if __name__ == "__main__":
    sys.exit(main())
