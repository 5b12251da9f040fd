"""A function whose first call has nothing to compile: torch skips it, and no compiled code is lost."""
import torch


@torch.compile(backend="eager")
def augment(image, mode):
    if mode == "none":
        return image
    return image.flip(-1) * 2


for mode in ("none", "none"):
    augment(torch.rand(3, 4), mode)
