"""A plug-in is looked up with importlib inside of the compiled function; torch refuses to trace importlib."""
import importlib

import torch


def plugin(name):
    return importlib.import_module(name)  # DX205


@torch.compile(backend="eager")
def area(radius):
    squared = radius * radius
    return squared * plugin("math").pi


torch.manual_seed(0)
area(torch.rand(4))
