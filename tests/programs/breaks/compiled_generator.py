"""torch.compile decorates a generator function, which then simply runs eagerly."""
import torch


@torch.compile(backend="eager")
def batches(data, size):  # DX207
    scaled = data / data.abs().max()
    for start in range(0, 6, size):
        yield scaled[start : start + size] * 2


torch.manual_seed(0)
total = torch.zeros(3)
for batch in batches(torch.randn(6, 3), 2):
    total += batch.sum(0)
