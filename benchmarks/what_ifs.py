"""What the what-ifs of `dynx run` cost: at most 1.15x the compile time with the default backend, inductor.

Each program is compiled with empty caches: with `dynx.watch(what_if=True)`, and with `dynx.watch()`.

python benchmarks/what_ifs.py [--out benchmarks/results/what_ifs.json]
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable

import torch
from observers import gpt2
from pairs import out_option, ratio, report
from torch import nn

import dynx

BOUND = 1.15


def of_sizes(model, *sizes):
    def run(compiled):
        with torch.no_grad():
            for size in sizes:
                compiled(torch.ones(1, size, dtype=torch.long) if model == "gpt2" else torch.ones(size, 64))

    return run


def printed(x):
    y = (x @ x.T).relu()
    print(end="")
    return y.sum(0)


class Counted(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers, self.step = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)), 0

    def forward(self, x):
        self.step += 1
        return self.layers(x) * self.step


def masked(x):
    return x[x > 0].sum() + (x * 2).sum()


PROGRAMS: dict[str, Callable[[], tuple[object, Callable]]] = {
    "GPT-2, two lengths": lambda: (gpt2(), of_sizes("gpt2", 8, 12)),
    "a model, four batch sizes": lambda: (nn.Sequential(nn.Linear(64, 64), nn.ReLU()).eval(), of_sizes("", 4, 5, 6, 7)),
    "a print in the middle": lambda: (printed, of_sizes("", 4)),
    "a counter on a module": lambda: (Counted().eval(), of_sizes("", 4, 4, 4, 4)),
    "a mask": lambda: (masked, of_sizes("", 4)),
}


def seconds(name: str, *, what_if: bool) -> float:
    """Return the seconds of compiling and running a program once, with empty caches."""
    from torch._inductor.utils import fresh_cache

    torch._dynamo.reset()
    gc.collect()
    fn, run = PROGRAMS[name]()
    with fresh_cache(), dynx.watch(what_if=what_if):
        begin = time.perf_counter()
        run(torch.compile(fn))
        return time.perf_counter() - begin


def main() -> int:
    """Measure each program."""
    out = out_option(__doc__)
    rows = [
        ratio(
            name,
            lambda name=name: seconds(name, what_if=True),
            lambda name=name: seconds(name, what_if=False),
            bound=BOUND,
            pairs=5,
        )
        for name in PROGRAMS
    ]
    return report("what-ifs against a watch without", rows, out)


if __name__ == "__main__":
    sys.exit(main())
