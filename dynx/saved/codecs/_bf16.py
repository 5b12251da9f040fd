"""Store tensors as bfloat16."""

from __future__ import annotations

from math import inf
from typing import Any

import torch

from dynx.saved._codec import Codec

_LARGEST = torch.finfo(torch.bfloat16).max


def bf16() -> Codec:
    """Store float32 and float64 tensors as bfloat16: half or a quarter of the bytes, relative error at most 2^-8.

    bfloat16 has the range of float32: only elements below 4.6e-41, which are denormal in float32, become 0. Finite elements
    above 3.39e38, also of float64, become 3.39e38.

    Example:
        >>> import torch
        >>> from dynx.saved import codecs
        >>> codec = codecs.bf16()
        >>> codec.unpack(codec.pack(torch.tensor([1.0, 1.001])))
        tensor([1., 1.])
    """
    return Codec("bf16", _pack, _unpack, keeps_mask=True, refuses=_refuses, code="saved.codecs.bf16()")


def _pack(tensor: torch.Tensor) -> Any:
    finite = tensor.clamp(-_LARGEST, _LARGEST)  # the cast would round larger elements to infinity
    return tensor.dtype, torch.where(tensor.abs() == inf, tensor, finite).to(torch.bfloat16)


def _unpack(packed: Any) -> torch.Tensor:
    dtype, stored = packed
    return stored.to(dtype)


def _refuses(tensor: torch.Tensor) -> str:
    return "it has 16 bits already" if tensor.element_size() <= 2 else ""
