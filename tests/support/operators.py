"""An operator that cannot be captured: graphs are split around it."""

from __future__ import annotations

import torch


@torch.library.custom_op("dynx_tests::doubled_uncaptured", mutates_args=(), tags=(torch.Tag.cudagraph_unsafe,))
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@doubled.register_fake
def _(x):
    return torch.empty_like(x)


doubled.register_autograd(lambda ctx, gradient: doubled(gradient))
