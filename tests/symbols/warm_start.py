"""Compile functions whose symbols collide, in a process of its own, and print the hits and misses of torch's caches as JSON.

`python warm_start.py MARKED`: functions of 1, 3 and 10 tensors beside `x` and `y`. With MARKED=1 these tensors are marked as
dynamic, although the loop over each specializes its size; with MARKED=0 they are static, as in the process before.
Graphs are products of matrices, which inductor compiles without C++. The stride of `x` is the product of two symbols: torch
2.15 leaves the names of symbols out of its cache keys, but not those in products.
"""

from __future__ import annotations

import hashlib
import json
import sys
from itertools import count

import torch
from torch._dynamo.utils import counters

from dynx import symbols


def number_of_torch(source):
    return int(hashlib.sha256(source.encode()).hexdigest(), 16) % 100


def colliding_names(source, amount):
    """Return names of tensors whose first size wants the number of a source, or one next to it that the names before have."""
    names, numbers = [], {number_of_torch(source)}
    candidates = (f"e{index}" for index in count())
    while len(names) < amount:
        name = next(candidates)
        number = number_of_torch(f"L['kw']['{name}'].size()[0]")
        if number in numbers:
            names.append(name)
            numbers.add(number + 1)
    return names


def function_of(amount):
    def f(kw, x, y, w):
        for name in sorted(kw):
            for row in range(kw[name].size(0)):
                w = w.mm(w) if row else w
        return x.transpose(1, 2).bmm(x), y.mm(w)

    f.__code__ = f.__code__.replace(co_name=f"f{amount}")
    return f


def hits_and_misses(amount, scheme, marked):
    torch._dynamo.reset()
    counters.clear()
    names = colliding_names("L['x'].size()[1]", amount)
    extra = {name: torch.ones(2, 4) for name in names}
    x, y, w = torch.ones(2, 5, 6), torch.ones(7, 4), torch.ones(4, 4)
    torch._dynamo.maybe_mark_dynamic(x, [1, 2])
    for tensor in (y, *(extra.values() if marked else ())):
        torch._dynamo.maybe_mark_dynamic(tensor, 0)
    handle = symbols.install(scheme) if scheme else None
    try:
        torch.compile(function_of(amount))(extra, x, y, w)
    finally:
        if handle is not None:
            handle.remove()
    fx, aot = counters["inductor"], counters["aot_autograd"]
    return [fx["fxgraph_cache_hit"], fx["fxgraph_cache_miss"], aot["autograd_cache_hit"], aot["autograd_cache_miss"]]


if __name__ == "__main__":
    cases = [(amount, scheme) for amount in (1, 3, 10) for scheme in ("", "blake63")]
    print(json.dumps([[amount, scheme, *hits_and_misses(amount, scheme, sys.argv[1] == "1")] for amount, scheme in cases]))
