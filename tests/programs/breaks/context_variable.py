"""A setting of the request is read from a context variable."""

from contextvars import ContextVar

import torch

scale = ContextVar("scale", default=2)


@torch.compile(backend="eager")
def answer(x):
    factor = scale.get()  # DX204 [torch<2.15]
    return x * factor


answer(torch.ones(4))
