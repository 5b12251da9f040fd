"""What dynx.compile adds to a warm call, and what it costs to inspect torch's cache.

Bounds, relative to a call of a function that torch.compile compiled, measured in turn: a call through dynx.compile takes 1.25
times as long, with `count_hits` 1.02 times; `would_recompile` takes 5.5 calls if an entry fits. Relative to a call of a model
with about 700 guards: `inspect` of its entry 100 calls, `profile` 6000. The parts of a profile add up to the whole within 15 %.
With 50 layers, dict tags at least halve the time of the guards, both as predicted and when applied.

python benchmarks/guards.py [--out benchmarks/results/guards.json]
"""

from __future__ import annotations

import sys
import time
import types

import torch
from pairs import out_option, ratio, report

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


def calls_with_and_without_a_counter(functions: int = 41) -> list[list[float]]:
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
    counted, plain = map(iter, calls_with_and_without_a_counter())
    cached = torch.compile(lambda x: x + 2, backend="eager")
    cached(x)
    layers = torch.compile(Layers(), backend="eager")
    y = torch.ones(2, 4)
    layers(y)
    size = guards.inspect(layers).entries[0].size
    return [
        ratio(
            "would_recompile, an entry fits",
            lambda: microseconds(lambda: dynx.would_recompile(cached, x), 500),
            lambda: microseconds(lambda: cached(x), 500),
            bound=5.5,
        ),
        ratio("count_hits, each call", lambda: next(counted), lambda: next(plain), bound=1.02, pairs=10),
        ratio(
            f"inspect, an entry of {size} guards",
            lambda: microseconds(lambda: guards.inspect(layers), 3),
            lambda: microseconds(lambda: layers(y), 20),
            bound=100,
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

    def larger_by() -> float:
        frame = guards.profile(plain, x).frames[0]
        return max(frame.tree.ns / frame.ns, frame.ns / frame.tree.ns)

    parts = ratio("profile, its parts against the whole", larger_by, lambda: 1.0, bound=1.15, pairs=7)
    with costs.apply("dict tags"):
        applied = ratio(
            "50 layers, dict tags applied", lambda: guards.profile(plain, x).ns, lambda: costs.ns, bound=0.5, pairs=7
        )
    predicted = ratio("50 layers, dict tags predicted", lambda: tags.ns, lambda: costs.ns, bound=0.5, pairs=3)
    duration = ratio(
        "profile, the same entry",
        lambda: microseconds(lambda: guards.profile(layers, x), 1),
        lambda: microseconds(lambda: layers(x), 20),
        bound=6000,
        pairs=7,
    )
    return [duration, parts, predicted, applied]


def main() -> int:
    out = out_option(__doc__)
    baseline = torch.compile(add, backend="eager")
    variants = {
        "warm call": dynx.compile(add_for_dynx, backend="eager"),
        "warm call, guard_config=False": dynx.compile(add_for_dynx, backend="eager", guard_config=False),
    }
    measured = [
        ratio(
            name,
            lambda compiled=compiled: microseconds_per_call(compiled),
            lambda: microseconds_per_call(baseline),
            bound=1.25,
        )
        for name, compiled in variants.items()
    ]
    return report("dynx.compile against torch.compile, and looking into its cache", measured + inspecting() + profiling(), out)


if __name__ == "__main__":
    sys.exit(main())
