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

    `pack` and `unpack` are traced into the compiled graphs, so they must consist of torch operators: no data-dependent branches
    or sizes, no tensors from closures or globals, no random numbers.

    Attributes:
        name: The name in reports, such as `"fp8(row)"`.
        pack: Takes the tensor, and returns the values to store: tensors, sizes and constants in tuples, lists or dicts.
        unpack: Takes the result of `pack`, and returns a tensor with the shape, dtype and device of the packed tensor.
        dtypes: The dtypes that the codec takes: `"floating"`, `"bool"`, or `"any"`.
        is_exact: Whether unpacking restores every element, or at least what backward reads of the tensor, such as `x > 0`.
        keeps_zeros: Whether zeros stay exactly 0, and signs stay the same. If False, the codec does not pack tensors of which
            backward reads only signs or zeros (masks), such as the output of ReLU: gradients would pass where they must be 0.
        keeps_mask: Whether nonzero elements stay nonzero (except denormal ones). Then tensors that backward reads as masks
            let the same gradients pass.
        zero_mask_only: Whether the codec stores one bit per element. It takes floating-point tensors only if one bit is enough,
            as when backward reads only `x > 0`; `pack` then receives a bool tensor.
        refuses: Takes a tensor, and returns why the codec cannot pack it, or `""`.
        code: The Python expression that creates the codec, for the rules to paste that `saved.plan` returns.
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
        """Return why the codec cannot pack a tensor, or an empty string; only the tensor's metadata is read."""
        if self.dtypes == "floating" and not (tensor.dtype.is_floating_point and tensor.element_size() > 1):
            return f"{self.name} is for floating-point tensors of 16 bits or more, not {dtype_name(tensor.dtype)}"
        if self.dtypes == "bool" and not (
            tensor.dtype is torch.bool or (self.zero_mask_only and tensor.dtype.is_floating_point)
        ):
            return f"{self.name} is for masks, not {dtype_name(tensor.dtype)}"
        return self.refuses(tensor) if self.refuses is not None else ""

    def __str__(self) -> str:
        return self.name


def dtype_name(dtype: torch.dtype) -> str:
    """Return the name of a dtype without its module, such as "float32"."""
    return str(dtype).removeprefix("torch.")
