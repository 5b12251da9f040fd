"""Store masks with one bit for each element."""

from __future__ import annotations

from typing import Any

import torch

from dynx.saved._codec import Codec

_BITS = 8


def bits() -> Codec:
    """Store a mask with one bit for each element, without error: an eighth of the bytes of a bool tensor.

    In compiled graphs, the codec also packs two kinds of floating-point tensors. Tensors that backward reads only as `x > 0`,
    such as the output of ReLU if nothing else needs it, are unpacked as 1 or 0. Tensors of two constants, such as
    `where(mask, 0, -inf)` in attention, are restored exactly.

    Eight neighbours in the last dim share a byte, so a last size that is not a multiple of 8 is padded. If the last size is
    dynamic, torch compiles multiples of 8 separately from other sizes.

    Example:
        >>> import torch
        >>> from dynx.saved import codecs
        >>> codec = codecs.bits()
        >>> codec.pack(torch.tensor([True, False, True]))[-1]
        tensor([5], dtype=torch.uint8)
        >>> codec.unpack(codec.pack(torch.tensor([True, False, True])))
        tensor([ True, False,  True])
    """
    return Codec(
        "bits", _pack, _unpack, "bool", is_exact=True, zero_mask_only=True, refuses=_refuses, code="saved.codecs.bits()"
    )


def _pack(tensor: torch.Tensor) -> Any:
    mask = tensor if tensor.dtype is torch.bool else tensor > 0
    last = tensor.shape[-1]
    padded = _padded(mask.to(torch.uint8), last)
    weights = 1 << torch.arange(_BITS, dtype=torch.uint8, device=tensor.device)
    return tensor.dtype, last, (padded.unflatten(-1, (-1, _BITS)) * weights).sum(-1, dtype=torch.uint8)


def _padded(mask: torch.Tensor, last: Any) -> torch.Tensor:
    """Return the mask with its last dim, of size `last`, padded to a multiple of 8; the padded elements may have any value."""
    if type(last) is int:
        return torch.nn.functional.pad(mask, (0, -last % _BITS))
    blocks = (last + _BITS - 1) // _BITS  # `pad` would compile one graph for multiples of 8 and one for others
    return mask.index_select(-1, torch.arange(blocks * _BITS, device=mask.device).clamp(max=last - 1))


def _unpack(packed: Any) -> torch.Tensor:
    dtype, last, stored = packed
    places = torch.arange(_BITS, dtype=torch.uint8, device=stored.device)
    mask = ((stored.unsqueeze(-1) >> places) & 1).flatten(-2)
    return mask[..., :last].to(dtype)


def _refuses(tensor: torch.Tensor) -> str:
    if tensor.dim() == 0:
        return "it is a single element"
    return "it has no elements" if any(type(size) is int and size == 0 for size in tensor.shape) else ""
