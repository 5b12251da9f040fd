"""The .data of a tensor made inside the compiled function is replaced, which torch does not support."""
import torch


@torch.compile(backend="eager")
def project(weight, limit):
    updated = weight - 0.1 * weight.sign()
    clamped = updated.clamp(-limit, limit)
    updated.data = clamped  # DX208
    return updated * 2


torch.manual_seed(0)
project(torch.randn(5), 0.5)
