"""Scales of quantized tensors: one for the tensor, for each row, or for each block of a row."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch.nn import functional

from dynx.errors import UsageError

Per = Literal["tensor", "row", "block"]
_MOST_PADDING = 1 / 8  # of a row
_TINY = 1e-30  # of a scale: the largest element of a row of zeros is 0


def checked(per: Any, block: Any) -> None:
    """Raise UsageError for a `per` that does not exist, or a block that is not a positive number."""
    if per not in ("tensor", "row", "block"):
        raise UsageError(f"per={per!r} is not known\n  pass 'tensor', 'row' or 'block'")
    if type(block) is not int or block < 1:
        raise UsageError(f"block={block!r} is not a positive number\n  pass the number of elements that share a scale")


def name_of(codec: str, per: Per, block: int) -> str:
    return f"{codec}({per})" if per != "block" else f"{codec}(block of {block})"


def options_of(per: Per, block: int) -> str:
    """Return the options as code."""
    return f'per="{per}"' + (f", block={block}" if per == "block" else "")


def refuses(tensor: torch.Tensor, *, per: Per, block: int) -> str:
    """Return why a tensor has no such scales; an empty string if it has."""
    if any(type(size) is int and size == 0 for size in tensor.shape):
        return "it has no elements"
    if per != "tensor" and tensor.dim() == 0:
        return "it is a single number, not rows"
    last = tensor.shape[-1] if tensor.dim() else 1
    if per == "block" and (type(last) is not int or -last % block > last * _MOST_PADDING):
        return f"its last size is {last}, not a multiple of the block of {block}, nor a little less than one"
    return ""


def scaled(tensor: torch.Tensor, largest: float, *, per: Per, block: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the scale in float32, and the tensor divided by it, whose elements are at most `largest`.

    A tensor of blocks has the last size split in two, `(..., blocks, block)`, the last of them filled up with 0.
    """
    values = tensor.float()
    if per == "block":
        missing = -values.shape[-1] % block
        values = (functional.pad(values, (0, missing)) if missing else values).unflatten(-1, (-1, block))
    magnitude = values.abs()
    top = magnitude.amax() if per == "tensor" else magnitude.amax(-1, keepdim=True)
    scale = top.clamp(min=_TINY) / largest
    return scale, (values / scale).clamp(-largest, largest)


def restored(stored: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype, per: Per, last: Any) -> torch.Tensor:
    """Return the tensor of this dtype and last size for what `scaled` returned."""
    values = stored.float() * scale
    if per == "block":
        values = values.flatten(-2)
        values = values if values.shape[-1] == last else values[..., :last]
    return values.to(dtype)


def last_size(tensor: torch.Tensor, per: Per) -> int | None:
    """Return what `restored` has to know of the shape."""
    return tensor.shape[-1] if per == "block" else None
