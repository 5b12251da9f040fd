"""Views of a tensor's memory with another dtype, layout, conjugate or negative bit.

Torch: `torch._neg_view`, which flips the negative bit in the same way as `Tensor.conj` flips the conjugate bit.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


def with_bits(tensor: torch.Tensor, *, is_conj: bool, is_neg: bool) -> torch.Tensor:
    """Return the tensor, or a view of it, with these conjugate and negative bits."""
    if tensor.is_conj() != is_conj:
        tensor = tensor.conj()
    return torch._neg_view(tensor) if tensor.is_neg() != is_neg else tensor


def view_of_memory(
    base: torch.Tensor, dtype: torch.dtype, size: Sequence[int], stride: Sequence[int], offset: int
) -> torch.Tensor:
    """Return a view of the memory of a strided tensor, with another dtype and layout; it shares the version counter of `base`.

    `offset` is the number of bytes from the first element of `base` to the first element of the view, and may be negative.
    """
    plain = with_bits(base, is_conj=False, is_neg=False)
    begin = base.storage_offset() * base.itemsize + offset
    whole = base.untyped_storage().nbytes() // max(base.itemsize, dtype.itemsize) * max(base.itemsize, dtype.itemsize)
    flat = plain.as_strided((whole // base.itemsize,), (1,), 0).view(dtype)
    return flat.as_strided(tuple(size), tuple(stride), begin // dtype.itemsize)
