"""Ten versions in total, but of two functions: each recompiles four times and neither reaches the limit."""
import torch


def mean_of(tensors):
    total = sum(tensors)  # DX104
    return total / 2


def product_of(tensors):
    result = torch.ones(3)
    for tensor in tensors:  # DX104
        result = result * tensor
    return result


torch.manual_seed(0)
mean = torch.compile(mean_of, backend="eager")
product = torch.compile(product_of, backend="eager")
pool = [torch.randn(3) for _ in range(6)]
for count in range(2, 7):
    mean(pool[:count])
    product(pool[:count])
