"""Eight lengths with dynamic=False make seven recompiles: each is reported, but the limit of eight versions is not passed."""
import torch


@torch.compile(backend="eager", dynamic=False)
def envelope(signal):
    squared = signal.square()  # DX102
    return squared.cumsum(0).sqrt()


torch.manual_seed(0)
lengths = [4, 5, 6, 7, 8, 9, 10, 11]
for epoch in range(2):
    for length in lengths:
        envelope(torch.randn(length))
