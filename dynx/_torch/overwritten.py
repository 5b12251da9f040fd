"""Tensors over the memory of others, that can be told to raise.

Torch: `_set_storage_data_ptr_access_error_msg`, with which the trees of CUDA graphs tell of outputs that were overwritten; builds
without CUDA lack it. `_storage_Use_Count`; alike in 2.11, 2.13 and 2.15. By DLPack a tensor gets a storage of its own, which keeps
the memory alive.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Telling(NamedTuple):
    """Functions of torch, without wrappers: they are called for each output of each replay."""

    over: Callable[[Any], Any]  # gives a tensor over the same memory, with a storage of its own
    is_used: Callable[[Any], bool]  # whether anybody else holds a storage
    forbid: Callable[[Any, str], None]  # has each use of what is in a storage raise RuntimeError with this text


def telling() -> Telling | None:
    """Give the functions; None where this build of torch lacks one."""
    from torch import _C

    forbid = getattr(_C, "_set_storage_data_ptr_access_error_msg", None)
    if forbid is None:
        return None
    to_dlpack, from_dlpack, count = _C._to_dlpack, _C._from_dlpack, _C._storage_Use_Count
    return Telling(
        lambda tensor: from_dlpack(to_dlpack(tensor)),
        lambda storage: count(storage._cdata) > 1,
        lambda storage, text: forbid(storage._cdata, text),
    )
