"""NumPy calls on a tensor's array look like a way out of the graph, but torch traces them as tensor operations."""
import numpy as np
import torch


def window(n):
    return 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(n) / n)


@torch.compile(backend="eager")
def spectrum(signal):
    array = signal.numpy() * window(8)
    folded = np.stack([array[:4], array[4:]]).sum(axis=0)
    return torch.from_numpy(folded).abs()


torch.manual_seed(0)
spectrum(torch.randn(8, dtype=torch.float64))
