"""The compiled noise function seeds the global generator, and torch.manual_seed is a function that is never traced."""
import torch


@torch.compile(backend="eager")
def noisy(x, seed=1234):
    doubled = x * 2
    torch.manual_seed(seed)  # DX205
    return doubled + torch.randn(3)


noisy(torch.ones(3))
