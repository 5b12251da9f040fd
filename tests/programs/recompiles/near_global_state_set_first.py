"""All global switches are thrown before the first compiled call and left alone, so no later call sees another state."""
import torch


@torch.compile(backend="eager")
def histogram(values, bins):
    return torch.zeros(4).index_add(0, bins, values)


torch.manual_seed(0)
torch.use_deterministic_algorithms(True)
torch.set_default_dtype(torch.float64)
torch.set_float32_matmul_precision("high")
for _ in range(3):
    histogram(torch.rand(10), torch.randint(0, 4, (10,)))
