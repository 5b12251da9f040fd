"""Scales of quantized tensors: one for the tensor, for each row, or for each block of a row."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf, nan
from typing import Any, Literal, NamedTuple

import torch
from torch.nn import functional

from dynx._torch.shapes.symbol_facts import known_size
from dynx.errors import UsageError
from dynx.saved._codec import Codec

Per = Literal["tensor", "row", "block"]
Encode = Callable[[torch.Tensor], torch.Tensor]
_MOST_PADDING = 1 / 8  # of a row


class Alphabet(NamedTuple):
    """Special codes of a storage format: the largest, and NaN. A code is a stored element: the element divided by its scale.

    A negative scale says that infinities or NaN are among its elements: then codes of the largest magnitude mean infinity.
    """

    largest: float
    below: float  # the largest code of a finite element beside infinities or NaN
    nan: float | None  # the code of NaN; None for a format that has NaN


def scaled_codec(name: str, code: str, alphabet: Alphabet, encode: Encode, *, per: Per, block: int) -> Codec:
    """Return a codec that stores scales and codes. A code is an element divided by its scale; `encode` rounds it to a format.

    `alphabet` has the largest numbers of the format. `code` is the beginning of the expression that creates the codec, up to
    its argument `per`. Raises UsageError if `per` is unknown, or `block`, the elements per block, is not a positive int.
    """
    if per not in ("tensor", "row", "block"):
        raise UsageError(f"per={per!r} is not known\n  pass 'tensor', 'row' or 'block'")
    if type(block) is not int or block < 1:
        raise UsageError(f"block={block!r} is not a positive int\n  pass the number of elements that share a scale")
    is_block = per == "block"
    return Codec(
        f"{name}(block of {block})" if is_block else f"{name}({per})",
        partial(_pack, alphabet=alphabet, encode=encode, per=per, block=block),
        partial(_unpack, alphabet=alphabet, per=per),
        refuses=partial(refuses, per=per, block=block),
        code=f'{code}per="{per}"' + (f", block={block})" if is_block else ")"),
    )


def _pack(tensor: torch.Tensor, *, alphabet: Alphabet, encode: Encode, per: Per, block: int) -> Any:
    scale, codes = scaled(tensor, alphabet, per=per, block=block)
    return tensor.dtype, scale, encode(codes), tensor.shape[-1] if per == "block" else None  # the size without padding


def _unpack(packed: Any, *, alphabet: Alphabet, per: Per) -> torch.Tensor:
    dtype, scale, stored, last = packed
    return restored(stored, scale, alphabet, dtype, per, last)


def refuses(tensor: torch.Tensor, *, per: Per, block: int) -> str:
    """Return why a codec with one scale for each `per` (tensor, row or block) cannot pack a tensor, or an empty string."""
    if any(type(size) is int and size == 0 for size in tensor.shape):
        return "it has no elements"
    if per != "tensor" and tensor.dim() == 0:
        return "it is a single number, not rows"
    shared = tensor.numel() if per == "tensor" else tensor.shape[-1]
    if type(shared) is not int and known_size(shared) == 0:
        return "its size depends on data, so that there may be no element that a scale is for"
    last = tensor.shape[-1] if tensor.dim() else 1
    if per == "block" and (type(last) is not int or -last % block > last * _MOST_PADDING):
        return f"its last size is {last}, not a multiple of the block of {block}, nor a little less than one"
    return ""


def scaled(tensor: torch.Tensor, alphabet: Alphabet, *, per: Per, block: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the scales, and the elements divided by their scale; the caller rounds these quotients to the storage format.

    With `per="block"`, the last dim is padded with 0 and split into `(..., blocks, block)`. Both results are float32, or
    float64 for a float64 tensor.
    """
    values = tensor if tensor.dtype is torch.float64 else tensor.float()
    if per == "block":
        missing = -values.shape[-1] % block
        values = (functional.pad(values, (0, missing)) if missing else values).unflatten(-1, (-1, block))
    largest, smallest = _extremes(values, per)  # NaN if an element is NaN
    is_finite = (largest < inf) & (smallest > -inf)
    # in the order of the graph, at most one temporary of the tensor's size is alive here, and two below
    largest, smallest = _extremes(values.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0), per)
    top = torch.maximum(largest, -smallest)
    limits = torch.finfo(values.dtype)
    # below the largest number, so that neither the quotient nor the product with a code is infinite
    scale = top.clamp(max=limits.max * (1 - 4 * limits.eps)) / torch.where(is_finite, alphabet.largest, alphabet.below)
    scale = scale.clamp(min=limits.tiny)
    codes = (values / scale).clamp(-alphabet.largest, alphabet.largest)
    if alphabet.nan is not None:
        codes = codes.nan_to_num(nan=alphabet.nan)
    return torch.where(is_finite, scale, -scale), codes


def _extremes(values: torch.Tensor, per: Per) -> tuple[torch.Tensor, torch.Tensor]:
    """Return, for each scale, the largest and the smallest of the elements that share it: a tensor, a row or a block."""
    if per == "tensor":
        return values.amax(), values.amin()
    return values.amax(-1, keepdim=True), values.amin(-1, keepdim=True)


def restored(
    stored: torch.Tensor, scale: torch.Tensor, alphabet: Alphabet, dtype: torch.dtype, per: Per, last: Any
) -> torch.Tensor:
    """Return the unpacked tensor: `stored` times `scale`, in `dtype`; if scales are per block, cut to the last size `last`."""
    codes = stored.to(scale.dtype)
    limit = torch.where(scale < 0, alphabet.largest, inf)
    is_finite = (codes < limit) & (codes > -limit)
    is_nan = codes == alphabet.nan if alphabet.nan is not None else None
    values = codes * scale.abs() / is_finite  # by 0 for an infinity: fewer temporaries than `where`
    if is_nan is not None:
        values = values.masked_fill(is_nan, nan)
    if per == "block":
        values = values.flatten(-2)
        values = values if values.shape[-1] == last else values[..., :last]
    return values.to(dtype)
