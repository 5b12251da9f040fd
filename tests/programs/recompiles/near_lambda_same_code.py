"""A new lambda object is made for each call, but always from the same line of code, so its code object is one and the same."""
import torch


@torch.compile(backend="eager")
def apply_twice(x, fn):
    once = fn(x)
    return fn(once)


torch.manual_seed(0)
for _ in range(4):
    apply_twice(torch.randn(3), lambda t: torch.sin(t) + 1)
