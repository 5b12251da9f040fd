"""Deterministic algorithms are switched on for the second half of the run."""
import torch


@torch.compile(backend="eager")
def histogram(values, bins):
    return torch.zeros(4).index_add(0, bins, values)


def run(seed):
    torch.manual_seed(seed)
    values, bins = torch.rand(10), torch.randint(0, 4, (10,))
    return histogram(values, bins)  # DX109


run(0)
run(1)
torch.use_deterministic_algorithms(True)
run(2)
run(3)
