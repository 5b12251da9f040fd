"""Builtins and C functions everywhere (math, sorted, operator, itertools), but only ones that torch can trace."""
import functools
import itertools
import math
import operator

import torch


@torch.compile(backend="eager")
def combine(parts, widths):
    order = sorted(range(len(parts)), key=lambda i: -widths[i])
    scaled = [parts[i] / math.sqrt(widths[i]) for i in order]
    total = functools.reduce(operator.add, scaled)
    for a, b in itertools.combinations(scaled, 2):
        total = total + a * b
    return total * max(map(abs, widths)) + sum(widths)


torch.manual_seed(0)
combine([torch.randn(4) for _ in range(3)], (2, 5, 3))
