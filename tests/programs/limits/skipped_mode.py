"""The identity mode of an augmentation has nothing to compile; the other modes run eagerly afterwards."""
import torch


@torch.compile(backend="eager")
def augment(image, mode):
    if mode == "none":  # DX303
        return image
    return image.flip(-1) * 2


for mode in ("flip", "none", "flip"):
    augment(torch.rand(3, 4), mode)
