"""A global bool toggles a check inside the compiled helper; switching it on costs a recompile."""
import torch

CLIP = False


def clip_if_wanted(values):
    if CLIP:  # DX103
        values = values.clamp(-1, 1)
    return values


@torch.compile(backend="eager")
def update(weights, grads):
    step = grads * 0.1
    return weights - clip_if_wanted(step)


torch.manual_seed(0)
weights = torch.randn(10)
weights = update(weights, torch.randn(10))
CLIP = True
weights = update(weights, torch.randn(10))
