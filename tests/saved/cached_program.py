"""Compiles a model under hooks with inductor, and prints how AOTAutograd's cache on disk was used.

Arguments: the number of a change to the codec, 0 for none.
"""

import sys

import torch
from torch._dynamo.utils import counters

from dynx import saved

change = int(sys.argv[1])
FACTOR = 3.0 if change == 1 else 2.0
closed_over = 5 if change == 2 else 4


def pack(x):
    return x.to(torch.bfloat16) * (FACTOR * 1)


def pack_otherwise(x):
    return x.to(torch.bfloat16) * (1 * FACTOR)


def make(number):
    return lambda packed: packed.float() / FACTOR + 0 * number


codec = saved.Codec("own", pack_otherwise if change == 3 else pack, make(closed_over))
rules = [
    saved.rule(codec, min_numel=17 if change == 4 else 16),
    saved.rule(
        saved.codecs.fp8("e5m2" if change == 5 else "e4m3", per="tensor" if change == 6 else "row"), dtype=torch.float32
    ),
]
if change == 7:
    rules.reverse()
hooks = saved.hooks(*rules, schedule="graph" if change == 8 else "auto", validate=change != 9)

torch.manual_seed(0)
model = torch.compile(torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4)))
with hooks:
    loss = model(torch.randn(8, 16)).sum()
loss.backward()
found = counters["aot_autograd"]
print("hit" if found["autograd_cache_hit"] else "miss" if found["autograd_cache_miss"] else "bypass")
