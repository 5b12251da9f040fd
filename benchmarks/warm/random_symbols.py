"""Random programs with N dynamic sizes: `python benchmarks/warm/random_symbols.py N PROGRAMS RUN SCHEME` prints their keys.

In run 1 further sizes are marked as dynamic, which each graph specializes, between those of run 0. SCHEME is `torch` or that of
`symbols.install`. Graphs are products of matrices, which inductor compiles without C++; the keys are of AOTAutograd's cache.
"""

from __future__ import annotations

import json
import random
import sys
from contextlib import nullcontext

import torch

from dynx import pgo, symbols


def program(numbers: random.Random, amount: int, function: int):
    """Return a function of `amount` tensors with dynamic sizes and of others whose size it needs, and these."""
    names = [f"{chr(97 + numbers.randrange(26))}{numbers.randrange(1000)}_{index}" for index in range(amount + 3)]
    needed = set(numbers.sample(names, 3))

    def total(tensors, w):
        out = []
        for name in sorted(tensors):
            if name in needed:
                for _ in range(tensors[name].size(0)):
                    w = w.mm(w)
            else:
                out.append(tensors[name].transpose(1, 2).bmm(tensors[name]))  # its stride is a product of symbols
        return out, w

    total.__code__ = total.__code__.replace(co_name=f"total{function}", co_qualname=f"total{function}")
    return total, names, needed


def keys(amount: int, programs: int, run: int, scheme: str) -> list[str]:
    found = []
    for number in range(programs):
        numbers = random.Random(1000 * amount + number)
        function, names, needed = program(numbers, amount, number)
        tensors = {
            name: torch.ones(2, 4) if name in needed else torch.ones(2, 5 + index, 60 + index)
            for index, name in enumerate(names)
        }
        torch._dynamo.reset()
        for name, tensor in tensors.items():
            if name not in needed:
                torch._dynamo.maybe_mark_dynamic(tensor, 1)
            elif run:
                torch._dynamo.maybe_mark_dynamic(tensor, 0)
        with symbols.install(scheme) if scheme != "torch" else nullcontext(), pgo.record() as recorder:
            torch.compile(function)(tensors, torch.ones(4, 4))
        found += [key.digest for key in recorder.cache_keys if key.cache == "aot_autograd"]
    return found


if __name__ == "__main__":
    print(json.dumps(keys(*map(int, sys.argv[1:4]), sys.argv[4])))
