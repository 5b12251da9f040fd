"""Each activation is compiled in a function of the program, which has a cache of its own."""

import torch

relu, tanh = torch.nn.ReLU(), torch.nn.Tanh()


@torch.compile(backend="eager")
def with_relu(x):
    return relu(x)


@torch.compile(backend="eager")
def with_tanh(x):
    return tanh(x)


with_relu(torch.ones(4))
with_tanh(torch.ones(4))
