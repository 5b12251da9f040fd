"""Memory that can be told to raise when it is used.

Torch: `_set_storage_data_ptr_access_error_msg`, with which trees of CUDA graphs tell of outputs that were overwritten; builds
without CUDA lack it. `_storage_Use_Count`; alike in 2.11, 2.13 and 2.15.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Telling(NamedTuple):
    count: Callable[[int], int]  # how many hold the storage with this `_cdata`
    forbid: Callable[[int, str], None]  # has each use of what is in it raise RuntimeError with this text


def telling() -> Telling | None:
    """Give the functions, without wrappers: the first is called in each replay; None where this build of torch lacks one."""
    from torch import _C

    forbid = getattr(_C, "_set_storage_data_ptr_access_error_msg", None)
    return None if forbid is None else Telling(_C._storage_Use_Count, forbid)
