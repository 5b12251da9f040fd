"""An enum member chooses the reduction; each other member is another object that torch guards on."""
import enum

import torch


class Reduction(enum.Enum):
    MEAN = "mean"
    SUM = "sum"


@torch.compile(backend="eager")
def reduce_loss(losses, how):
    clipped = losses.clamp(max=10)
    if how is Reduction.MEAN:  # DX110
        return clipped.mean()
    return clipped.sum()


torch.manual_seed(0)
for member in Reduction:
    reduce_loss(torch.rand(6), member)
