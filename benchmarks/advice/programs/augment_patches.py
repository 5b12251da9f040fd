"""Data augmentation of image patches for a classifier, compiled to fuse its operators."""

import enum
import random

import numpy as np
import torch


class Flip(enum.Enum):
    NONE = 0
    HORIZONTAL = 1
    VERTICAL = 2


MEAN = np.array([0.48, 0.45, 0.40], dtype=np.float32)
STD = np.array([0.22, 0.22, 0.22], dtype=np.float32)


def decode(index):
    """Stands for a decoder: PNGs arrive as height x width x channels, cached tensors as channels first."""
    rng = np.random.default_rng(index)
    image = rng.random((48, 48, 3), dtype=np.float32)
    tensor = torch.from_numpy(image).permute(2, 0, 1)
    if index % 2:
        return tensor.contiguous()
    return tensor


def gaussian(width, sigma):
    offset = torch.arange(width) - width // 2
    kernel = torch.exp(-(offset**2) / (2 * sigma**2))
    return kernel / kernel.sum()


@torch.compile(backend="eager")
def augment(image, flip, top, left, size=32):
    x = (image - torch.from_numpy(MEAN)[:, None, None]) / torch.from_numpy(STD)[:, None, None]
    if flip is Flip.HORIZONTAL:
        x = x.flip(-1)
    elif flip is Flip.VERTICAL:
        x = x.flip(-2)
    x = x[:, top : top + size, left : left + size]
    kernel = gaussian(5, 1.2)
    blurred = torch.nn.functional.conv2d(x[:, None], kernel.outer(kernel)[None, None], padding=2)[:, 0]
    mix = random.uniform(0.0, 0.5)
    return torch.lerp(x, blurred, mix)


def batches(count, size):
    """A generator of batches."""
    batch = []
    for index in range(count):
        image = decode(index)
        flip = random.choice(list(Flip))
        top, left = random.randint(0, 16), random.randint(0, 16)
        batch.append(augment(image, flip, top, left))
        if len(batch) == size:
            yield torch.stack(batch)
            batch = []


def main():
    random.seed(11)
    torch.manual_seed(0)
    for number, batch in enumerate(batches(24, 8)):
        print(f"batch {number}: {tuple(batch.shape)}, std {batch.std():.3f}")


if __name__ == "__main__":
    main()
