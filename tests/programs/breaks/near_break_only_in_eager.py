"""`is_compiling()` is true while torch traces, so the break is not in the traced code."""

import torch


@torch.compile(backend="eager")
def step(x):
    y = x * 2
    if not torch.compiler.is_compiling():
        torch._dynamo.graph_break()
    return y + 1


step(torch.ones(4))
