"""What dynx.compile adds to a warm call (at most 2.5 microseconds), and what it costs to look into torch's cache.

`would_recompile` at most 50 microseconds where an entry fits, `count_hits` 0.1 for each call, `inspect` of an entry with about
700 guards 20 milliseconds, `profile` of it 2 seconds, its parts within 15 % of the whole. All differences are against the same
without. Of 50 layers: what the guards take with dict tags against what they take without, as predicted and as applied.

python benchmarks/guards.py [--out benchmarks/results/guards.json]
"""

from __future__ import annotations

import sys
import time
import types

import torch
from pairs import difference, out_option, ratio, report

import dynx
from dynx import guards

CALLS, BURSTS = 400, 15
LAYERS = 32


def add(x):
    return x + 1


def also_add(x):
    return x + 1


def microseconds_a_call(compiled) -> float:
    """Give the fastest of several bursts: what is compared are fractions of a microsecond."""
    x = torch.ones(3)
    compiled(x)
    return min(microseconds(lambda: compiled(x), CALLS) for _ in range(BURSTS))


class Layer(torch.nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.scale = scale

    def forward(self, x):
        return torch.relu(self.linear(x)) * self.scale


class Layers(torch.nn.Module):
    def __init__(self, count=LAYERS):
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer(1.0 + i) for i in range(count))

    def forward(self, x):
        for each in self.layers:
            x = each(x)
        return x


def microseconds(work, times) -> float:
    start = time.perf_counter()
    for _ in range(times):
        work()
    return (time.perf_counter() - start) / times * 1e6


def calls_with_and_without_a_counter(functions: int = 21) -> list[list[float]]:
    """Measure functions with code of their own, all in turn, the fastest burst of each, in microseconds a call.

    Two functions that do the same differ by as much as a counter takes, by where they lie in memory.
    """
    x = torch.ones(3)
    compiled = []
    for number in range(2 * functions):
        fresh = types.FunctionType(add.__code__.replace(co_name=f"add{number}"), globals())
        compiled.append(torch.compile(fresh, backend="eager"))
        compiled[-1](x)
        if number % 2:
            guards.count_hits(compiled[-1]).__enter__().__exit__()
    bursts = [[microseconds(lambda each=each: each(x), CALLS) for each in compiled] for _ in range(BURSTS)]
    best = [min(each) for each in zip(*bursts, strict=True)]
    return [best[1::2], best[::2]]


def looking() -> list:
    """Measure what looks into the cache against doing nothing, or the same call without it."""
    x = torch.ones(3)
    counted, plain = calls_with_and_without_a_counter()
    asked = torch.compile(lambda x: x + 2, backend="eager")
    asked(x)
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
            counted.pop,
            plain.pop,
            bound=0.1,
            unit=" us",
            pairs=20,
        ),
        difference(
            f"inspect, an entry of {size} guards",
            lambda: microseconds(lambda: guards.inspect(layers), 3) / 1e3,
            lambda: 0.0,
            bound=20,
            unit=" ms",
        ),
    ]


def profiling() -> list:
    """Measure what profiling takes, how far its parts are from the whole, and what dict tags save."""
    x = torch.ones(2, 4)
    layers = torch.compile(Layers(), backend="eager")
    layers(x)
    with torch._dynamo.config.patch(use_recursive_dict_tags_for_guards=False):
        torch._dynamo.reset()
        plain = torch.compile(Layers(50), backend="eager")
        costs = guards.profile(plain, x)
    tags = next(each for each in costs.settings if each.name == "dict tags")

    def seconds() -> float:
        start = time.perf_counter()
        guards.profile(layers, x)
        return time.perf_counter() - start

    def off() -> float:
        frame = guards.profile(plain, x).frames[0]
        return abs(1 - frame.tree.ns / frame.ns)

    parts = difference("profile, its parts against the whole", off, lambda: 0.0, bound=0.15, unit="", pairs=7)
    with costs.apply("dict tags"):
        applied = ratio(
            "50 layers, dict tags applied", lambda: guards.profile(plain, x).ns, lambda: costs.ns, bound=0.5, pairs=7
        )
    predicted = ratio("50 layers, dict tags predicted", lambda: tags.ns, lambda: costs.ns, bound=0.5, pairs=3)
    took = difference("profile, the same entry", seconds, lambda: 0.0, bound=2, unit=" s", pairs=7)
    return [took, parts, predicted, applied]


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
    return report(
        "dynx.compile against torch.compile, and looking into its cache", measured + looking() + profiling(), out_option()
    )


if __name__ == "__main__":
    sys.exit(main())
