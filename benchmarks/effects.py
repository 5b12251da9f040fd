"""What `dynx.watch()` costs where functions have side effects, and what `dynx.check` costs.

Tracing takes at most 1.10x and calls at most 1.02x under a watch; a check at most 1.5x of the calls that it makes.

python benchmarks/effects.py [--out benchmarks/results/effects-cpu.json]
"""

from __future__ import annotations

import contextlib
import gc
import sys
import time

import torch
from observers import call_seconds, gpt2
from pairs import out_option, ratio, report
from torch import nn

import dynx


class Mutating(nn.Module):
    """A model of which half of the lines change an object: attributes, lists, dicts and buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(24))
        self.steps, self.shapes, self.seen, self.recent = 0, [], {}, list(range(64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number, layer in enumerate(self.layers):
            x = layer(x).relu()
            self.steps += 1
            self.shapes.append(number)
            self.seen[number] = x.dim()
            self.recent[number] = number
        return x


def recording(record: bool):
    return dynx.watch() if record else contextlib.nullcontext()


def compile_seconds(model: nn.Module, x: torch.Tensor, record: bool) -> float:
    torch._dynamo.reset()
    gc.collect()
    compiled = torch.compile(model, backend="eager")
    with recording(record), torch.no_grad():
        start = time.perf_counter()
        compiled(x)
        return time.perf_counter() - start


def check_seconds(model: nn.Module, x: torch.Tensor, check: bool) -> float:
    """Seconds of a check; without one, of the compilation, calls and gradients that it makes: eager and compiled, twice each.

    On one thread: a second one takes longer to wake up than these kernels run. A check takes no graph from the AOTAutograd
    cache, and neither do the calls.
    """
    torch._dynamo.reset()
    gc.collect()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    start = time.perf_counter()
    if check:
        dynx.check(model, x, backend="inductor").assert_ok()
    else:
        compiled = torch.compile(model)
        with torch._functorch.config.patch(enable_autograd_cache=False):
            for fn in (model, model, compiled, compiled):
                torch.autograd.grad(fn(x).sum(), list(model.parameters()))
    seconds = time.perf_counter() - start
    torch.set_num_threads(threads)
    return seconds


def main() -> int:
    out = out_option(__doc__)
    torch.manual_seed(0)
    tokens, x = torch.ones(1, 8, dtype=torch.long), torch.randn(4, 8)
    transformer, mutating = gpt2(), Mutating().eval()
    small = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 2))
    torch._dynamo.reset()
    linear = torch.compile(nn.Linear(8, 8), backend="eager")
    rows = [
        ratio(
            "tracing, GPT-2",
            lambda: compile_seconds(transformer, tokens, True),
            lambda: compile_seconds(transformer, tokens, False),
            bound=1.10,
        ),
        ratio(
            "tracing, 96 mutations of 4 objects",
            lambda: compile_seconds(mutating, x, True),
            lambda: compile_seconds(mutating, x, False),
            bound=1.10,
            pairs=31,
        ),
        ratio(
            "calls, one layer",
            lambda: call_seconds(linear, x, True, 5000),
            lambda: call_seconds(linear, x, False, 5000),
            bound=1.02,
            pairs=61,
        ),
        ratio(
            "check, beside the calls and gradients that it makes",
            lambda: check_seconds(small, x, True),
            lambda: check_seconds(small, x, False),
            bound=1.5,
            pairs=9,
        ),
    ]
    return report("dynx.watch() and dynx.check against neither", rows, out)


if __name__ == "__main__":
    sys.exit(main())
