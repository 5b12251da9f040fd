"""`Codec`: how a tensor is stored between forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch

Refuse = Callable[[torch.Tensor], str]


@dataclass(frozen=True, slots=True)
class Codec:
    """How a tensor is stored between forward and backward.

    `pack` and `unpack` are traced into the compiled graphs, so they consist of operators of torch, with sizes as in any traced
    code: no data-dependent branches, no tensors from outside, no random numbers.

    Attributes:
        name: As reports show it, such as `"fp8(row)"`.
        pack: Takes the tensor, and returns what is stored: tensors, sizes and constants in tuples, lists or dicts.
        unpack: Takes what `pack` returned, and returns a tensor of the same shape, dtype and device as the first.
        dtypes: Which tensors it takes: `"floating"`, `"bool"`, or `"any"`.
        is_exact: Every element is the same afterwards.
        keeps_zeros: Exact zeros stay zeros, and no sign changes. Where it is False, a tensor that backward reads as a mask is
            not packed, such as the output of ReLU: its zeros would let the gradient pass.
        keeps_mask: No element becomes 0 that was not, but for denormal ones: a tensor that backward reads as a mask lets the
            same gradients pass.
        zero_mask_only: The codec keeps one bit for each element. Of floating-point tensors it takes those for which that is
            enough, and gets them as a bool tensor.
        refuses: Takes a tensor, and returns why the codec cannot pack it, or `""`.
        code: The expression that makes the codec, as `saved.plan` writes it.
    """

    name: str
    pack: Callable[[torch.Tensor], Any]
    unpack: Callable[[Any], torch.Tensor]
    dtypes: Literal["floating", "bool", "any"] = "floating"
    is_exact: bool = False
    keeps_zeros: bool = True
    keeps_mask: bool = False
    zero_mask_only: bool = False
    refuses: Refuse | None = None
    code: str = ""

    def why_not(self, tensor: torch.Tensor) -> str:
        """Return why the codec does not take a tensor, or an empty string; only its metadata is read."""
        if self.dtypes == "floating" and not (tensor.dtype.is_floating_point and tensor.element_size() > 1):
            return f"{self.name} is for floating-point tensors of 16 bits or more, not {_short(tensor.dtype)}"
        if self.dtypes == "bool" and not (
            tensor.dtype is torch.bool or (self.zero_mask_only and tensor.dtype.is_floating_point)
        ):
            return f"{self.name} is for masks, not {_short(tensor.dtype)}"
        return self.refuses(tensor) if self.refuses is not None else ""

    def __str__(self) -> str:
        return self.name


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
