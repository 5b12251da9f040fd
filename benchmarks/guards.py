"""What dynx.compile adds to a warm call, and what it costs to inspect torch's cache.

Bounds: dynx.compile adds at most 2.5 microseconds to a call, `would_recompile` takes 50 microseconds if an entry fits,
`count_hits` adds 0.1 to a call, `inspect` of an entry with about 700 guards takes 20 milliseconds, `profile` of it 2 seconds,
and the parts of the profile add up to the whole within 15 %. Differences are against the same program without dynx. With 50
layers, dict tags at least halve the time of the guards, both as predicted and when applied.

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


def add_for_dynx(x):
    return x + 1


def microseconds_per_call(compiled) -> float:
    """Return the fastest of several bursts: the differences are fractions of a microsecond."""
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
        for layer in self.layers:
            x = layer(x)
        return x


def microseconds(work, times) -> float:
    start = time.perf_counter()
    for _ in range(times):
        work()
    return (time.perf_counter() - start) / times * 1e6


def calls_with_and_without_a_counter(functions: int = 21) -> list[list[float]]:
    """Return the microseconds per call of functions with a counter, and of functions without: the fastest burst of each.

    Each function has a code object of its own, and they are measured in turn: the address of a function in memory alone makes
    as much difference as a counter.
    """
    x = torch.ones(3)
    compiled = []
    for number in range(2 * functions):
        function = types.FunctionType(add.__code__.replace(co_name=f"add{number}"), globals())
        compiled.append(torch.compile(function, backend="eager"))
        compiled[-1](x)
        if number % 2:
            with guards.count_hits(compiled[-1]):
                pass  # the counter stays
    bursts = [[microseconds(lambda f=f: f(x), CALLS) for f in compiled] for _ in range(BURSTS)]
    best = [min(times) for times in zip(*bursts, strict=True)]
    return [best[1::2], best[::2]]


def inspecting() -> list:
    """Measure functions that inspect the cache, against doing nothing or the same call without them."""
    x = torch.ones(3)
    counted, plain = calls_with_and_without_a_counter()
    cached = torch.compile(lambda x: x + 2, backend="eager")
    cached(x)
    layers = torch.compile(Layers(), backend="eager")
    layers(torch.ones(2, 4))
    size = guards.inspect(layers).entries[0].size
    return [
        difference(
            "would_recompile, an entry fits",
            lambda: microseconds(lambda: dynx.would_recompile(cached, x), 500),
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
    """Measure how long profiling takes, how far its parts are from the whole, and what dict tags save."""
    x = torch.ones(2, 4)
    layers = torch.compile(Layers(), backend="eager")
    layers(x)
    with torch._dynamo.config.patch(use_recursive_dict_tags_for_guards=False):
        torch._dynamo.reset()
        plain = torch.compile(Layers(50), backend="eager")
        costs = guards.profile(plain, x)
    tags = next(setting for setting in costs.settings if setting.name == "dict tags")

    def seconds() -> float:
        start = time.perf_counter()
        guards.profile(layers, x)
        return time.perf_counter() - start

    def relative_error() -> float:
        frame = guards.profile(plain, x).frames[0]
        return abs(1 - frame.tree.ns / frame.ns)

    parts = difference("profile, its parts against the whole", relative_error, lambda: 0.0, bound=0.15, unit="", pairs=7)
    with costs.apply("dict tags"):
        applied = ratio(
            "50 layers, dict tags applied", lambda: guards.profile(plain, x).ns, lambda: costs.ns, bound=0.5, pairs=7
        )
    predicted = ratio("50 layers, dict tags predicted", lambda: tags.ns, lambda: costs.ns, bound=0.5, pairs=3)
    duration = difference("profile, the same entry", seconds, lambda: 0.0, bound=2, unit=" s", pairs=7)
    return [duration, parts, predicted, applied]


def main() -> int:
    out = out_option(__doc__)
    baseline = torch.compile(add, backend="eager")
    variants = {
        "warm call": dynx.compile(add_for_dynx, backend="eager"),
        "warm call, guard_config=False": dynx.compile(add_for_dynx, backend="eager", guard_config=False),
    }
    measured = [
        difference(
            name,
            lambda compiled=compiled: microseconds_per_call(compiled),
            lambda: microseconds_per_call(baseline),
            bound=2.5,
            unit=" us",
        )
        for name, compiled in variants.items()
    ]
    return report("dynx.compile against torch.compile, and looking into its cache", measured + inspecting() + profiling(), out)


if __name__ == "__main__":
    sys.exit(main())
