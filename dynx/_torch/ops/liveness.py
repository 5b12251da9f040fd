"""Whether a tensor, or its memory, is still alive, also where only autograd holds it.

Torch: `torch._C._WeakTensorRef`, `torch._neg_view` and `torch.multiprocessing.reductions.StorageWeakRef`, alike in 2.11, 2.13
and 2.15. A weak reference of Python ends with the Python object, which autograd does not need.
"""

from __future__ import annotations

import gc
from typing import Any

import torch


def weak_tensor(tensor: Any) -> Any:
    """Make a reference whose `expired()` tells when the tensor is gone."""
    from torch._C import _WeakTensorRef  # type: ignore[attr-defined]

    return _WeakTensorRef(tensor)


class WeakMemory:
    """A tensor without its memory, which others keep alive or not."""

    def __init__(self, tensor: Any) -> None:
        from torch.multiprocessing.reductions import StorageWeakRef

        storage = tensor.untyped_storage()
        self.address, self._weak = storage.data_ptr(), StorageWeakRef(storage)
        self._layout = tensor.storage_offset(), tensor.size(), tensor.stride()
        self._dtype, self._is_conj, self._is_neg = tensor.dtype, tensor.is_conj(), tensor.is_neg()

    def is_there(self) -> bool:
        """Tell whether its memory was never given back."""
        return not self._weak.expired()

    def tensor(self) -> Any:
        """Make the tensor again, over what lies at its address now; None where nothing does."""
        storage = self._storage()
        return None if storage is None else self._read(torch.empty(0, dtype=self._dtype).set_(storage, *self._layout))

    def elsewhere(self, other: Any) -> Any:
        """Make the tensor over the memory of another, as if that began where its own did."""
        offset, size, stride = self._layout
        return self._read(other.as_strided(size, stride, other.storage_offset() + offset))

    def _read(self, tensor: Any) -> Any:
        tensor = tensor.conj() if self._is_conj else tensor
        return torch._neg_view(tensor) if self._is_neg else tensor

    def _storage(self) -> Any:
        if self._weak.expired():  # another tensor may have come there since
            plain = (each for each in gc.get_objects() if type(each) in (torch.Tensor, torch.nn.Parameter))
            there = [each for each in plain if _address(each) == self.address]
            return there[0].untyped_storage() if there else None
        return torch.UntypedStorage._new_with_weak_ptr(self._weak.cdata)


def _address(tensor: Any) -> int | None:
    try:
        return int(tensor.untyped_storage().data_ptr())
    except (RuntimeError, NotImplementedError):  # it has no memory, such as a sparse one
        return None
