"""A graph break inside a `with` block of a hand-written context manager takes the whole function with it."""
import torch


class Scope:
    def __init__(self, name):
        self.name = name
        self.depth = 0

    def __enter__(self):
        self.depth += 1
        return self

    def __exit__(self, *exc):
        self.depth -= 1
        return False


@torch.compile(backend="eager")
def normalize(x):
    with Scope("normalize"):
        y = x - x.mean()
        torch._dynamo.graph_break()  # DX206
        return y / y.norm()


torch.manual_seed(0)
normalize(torch.randn(4))
