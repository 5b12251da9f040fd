"""The same loss is called with a leaf that wants gradients and with one that does not."""
import torch


@torch.compile(backend="eager")
def energy(position, springs):
    stretched = position * springs  # DX106
    return (stretched**2).sum()


torch.manual_seed(0)
springs = torch.rand(5)
position = torch.randn(5, requires_grad=True)
energy(position, springs).backward()
energy(torch.randn(5), springs)
