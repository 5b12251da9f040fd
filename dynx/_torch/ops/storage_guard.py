"""Count the references to a storage, and make it raise an error when its data is accessed.

Torch: `_set_storage_data_ptr_access_error_msg`, with which `cudagraph_trees` reports accesses to overwritten outputs; builds
without CUDA lack it. `_storage_Use_Count`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class StorageGuard(NamedTuple):
    """Torch's functions that count references to a storage and forbid access to it; they take the storage's `_cdata`."""

    count: Callable[[int], int]  # returns the reference count of the storage
    forbid: Callable[[int, str], None]  # makes every access to its data raise RuntimeError with this text


def storage_guard() -> StorageGuard | None:
    """Return torch's functions that count references to a storage and forbid access to it; None if torch lacks them.

    They are not wrapped, since `count` is called in every replay.
    """
    from torch import _C

    forbid = getattr(_C, "_set_storage_data_ptr_access_error_msg", None)
    return None if forbid is None else StorageGuard(_C._storage_Use_Count, forbid)
