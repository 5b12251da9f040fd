"""What dynx.compile adds to a warm call (at most 2.5 microseconds), and what it costs to look into torch's cache.

`would_recompile` at most 50 microseconds where an entry fits, `count_hits` 0.1 for each call, `inspect` of an entry with about
700 guards 20 milliseconds. All differences are against the same without.

python benchmarks/guards.py [--out benchmarks/results/guards.json]
"""

from __future__ import annotations

import sys
import time

import torch
from pairs import difference, out_option, report

import dynx
from dynx import guards

CALLS = 4000
LAYERS = 32


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


class Layer(torch.nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.scale = scale

    def forward(self, x):
        return torch.relu(self.linear(x)) * self.scale


class Layers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer(1.0 + i) for i in range(LAYERS))

    def forward(self, x):
        for each in self.layers:
            x = each(x)
        return x


def microseconds(work, times) -> float:
    start = time.perf_counter()
    for _ in range(times):
        work()
    return (time.perf_counter() - start) / times * 1e6


def looking() -> list:
    """Measure what looks into the cache against doing nothing, or the same call without it."""
    x = torch.ones(3)
    asked, plain, counted = (torch.compile(f, backend="eager") for f in (lambda x: x + 2, lambda x: x + 3, lambda x: x + 3))
    asked(x), plain(x), counted(x)
    guards.count_hits(counted).__enter__()
    layers = torch.compile(Layers(), backend="eager")
    layers(torch.ones(2, 4))
    size = guards.inspect(layers).entries[0].size
    return [
        difference(
            "would_recompile, an entry fits",
            lambda: microseconds(lambda: dynx.would_recompile(asked, x), 500),
            lambda: microseconds(lambda: None, 500),
            bound=50,
            unit=" us",
        ),
        difference(
            "count_hits, each call",
            lambda: microseconds_a_call(counted),
            lambda: microseconds_a_call(plain),
            bound=0.1,
            unit=" us",
        ),
        difference(
            f"inspect, an entry of {size} guards",
            lambda: microseconds(lambda: guards.inspect(layers), 3) / 1e3,
            lambda: 0.0,
            bound=20,
            unit=" ms",
        ),
    ]


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
    return report("dynx.compile against torch.compile, and looking into its cache", measured + looking(), out_option())


if __name__ == "__main__":
    sys.exit(main())
