"""Store tensors as 4-bit integers, two in a byte."""

from __future__ import annotations

from typing import Any

import torch

from dynx.saved._codec import Codec
from dynx.saved.codecs import _scales

_ALPHABET = _scales.Alphabet(7, 6, -8)


def int4() -> Codec:
    """Store floating-point tensors as 4-bit integers and a float32 scale for each row: an eighth of the bytes of float32.

    The error of an element is at most 1/14 of the largest finite element in its row, or 1/12 if the row has infinities or NaN;
    elements below this bound become 0. `saved.grad_error` measures the effect on gradients.

    Example:
        >>> import torch
        >>> from dynx.saved import codecs
        >>> codec = codecs.int4()
        >>> codec.unpack(codec.pack(torch.tensor([[7.0, 1.2, -0.3, -7.0]])))
        tensor([[ 7.,  1.,  0., -7.]])
    """
    return Codec("int4(row)", _pack, _unpack, refuses=_refuses, code="saved.codecs.int4()")


def _pack(tensor: torch.Tensor) -> Any:
    scale, values = _scales.scaled(tensor, _ALPHABET, per="row", block=1)
    shifted = (values.round() + 8).to(torch.uint8)
    return tensor.dtype, scale, shifted[..., ::2] | (shifted[..., 1::2] << 4)


def _unpack(packed: Any) -> torch.Tensor:
    dtype, scale, stored = packed
    pairs = torch.stack((stored & 15, stored >> 4), -1).flatten(-2).to(torch.int8)
    return _scales.restored(pairs - 8, scale, _ALPHABET, dtype, "row", None)


def _refuses(tensor: torch.Tensor) -> str:
    if reason := _scales.refuses(tensor, per="row", block=1):
        return reason
    last = tensor.shape[-1]
    return "" if type(last) is int and last % 2 == 0 else f"its last size is {last}, which is not an even number"
