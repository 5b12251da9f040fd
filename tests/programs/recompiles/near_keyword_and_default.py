"""The same values arrive positionally, by keyword and by default; to the compiled function these calls are all alike."""
import torch


@torch.compile(backend="eager")
def blend(a, b, ratio=0.25, normalize=True):
    mixed = a * ratio + b * (1 - ratio)
    if normalize:
        mixed = mixed / mixed.norm()
    return mixed


torch.manual_seed(0)
a, b = torch.randn(5), torch.randn(5)
blend(a, b)
blend(a, b, 0.25, True)
blend(a, b=b, normalize=True)
blend(b=b, a=a, ratio=0.25)
