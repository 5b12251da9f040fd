"""An item of an array.array is assigned in compiled code, and the tracer cannot track such an object."""
import array

import torch

counts = array.array("i", [0, 0, 0])


@torch.compile(backend="eager")
def route(x, expert=1):
    y = x * 3
    counts[expert] = 7  # DX208
    return y - 1


torch.manual_seed(0)
route(torch.randn(4))
