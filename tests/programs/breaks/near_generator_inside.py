"""Generators are only used up within the compiled function, or around it, where torch traces through or does not look."""
import torch


def windows(x, size):
    for start in range(0, x.shape[0] - size + 1, size):
        yield x[start : start + size]


def data(count):
    for _ in range(count):
        yield torch.randn(6)


@torch.compile(backend="eager")
def strongest(x):
    energies = [w.square().sum() for w in windows(x, 2)]
    return torch.stack(energies).max() + sum(w.sum() for w in windows(x, 3))


torch.manual_seed(0)
for x in data(3):
    strongest(x)
