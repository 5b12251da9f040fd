"""Gradient clipping branches in Python on the norm of the gradients."""
import torch


def clip(grads, limit):
    norm = torch.stack([g.norm() for g in grads]).norm()
    if norm > limit:  # DX203
        grads = [g * (limit / norm) for g in grads]
    return grads


@torch.compile(backend="eager")
def update(params, grads):
    clipped = clip(grads, 1.0)
    return [p - 0.1 * g for p, g in zip(params, clipped)]


torch.manual_seed(0)
params = [torch.randn(3), torch.randn(2, 2)]
update(params, [torch.randn(3) * 5, torch.randn(2, 2)])
