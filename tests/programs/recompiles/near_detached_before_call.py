"""Some inputs want gradients and some do not, but all are detached before they reach the compiled function."""
import torch


@torch.compile(backend="eager")
def energy(position, springs):
    stretched = position * springs
    return (stretched**2).sum()


torch.manual_seed(0)
springs = torch.rand(5)
for wants_grad in (True, False, True):
    position = torch.randn(5, requires_grad=wants_grad)
    energy(position.detach(), springs)
