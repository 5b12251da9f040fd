"""Detect whether a tensor or its storage is alive, even if only autograd references it, and forbid access to a storage.

Torch: `torch._C._WeakTensorRef`, `torch._C._storage_Use_Count` and `torch.multiprocessing.reductions.StorageWeakRef`. A Python
weak reference expires with the Python object, which autograd does not keep alive. `cudagraph_trees` reports accesses to
overwritten outputs with `_set_storage_data_ptr_access_error_msg`, which is missing in builds without CUDA.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from dynx._torch.ops.views import view_of_memory, with_bits


def weak_tensor(tensor: Any) -> Any:
    """Return a weak reference whose `expired()` is true once the C++ tensor, which may outlive the Python object, is freed."""
    from torch._C import _WeakTensorRef  # type: ignore[attr-defined]

    return _WeakTensorRef(tensor)


def uses_of_memory(tensor: Any) -> int:
    """Return how many tensors and other C++ objects use the storage of a tensor, including that tensor.

    Returns 0 if this build of torch has no `_storage_Use_Count`.
    """
    count = getattr(torch._C, "_storage_Use_Count", None)
    storage = tensor.untyped_storage()
    return 0 if count is None else int(count(storage._cdata)) - 1  # without the Python object of the storage


def is_used(storage: Any) -> bool:
    """Return whether a tensor or another C++ object uses the storage; True if torch cannot count the uses."""
    count = getattr(torch._C, "_storage_Use_Count", None)
    return count is None or int(count(storage._cdata)) > 1


class StorageGuard(NamedTuple):
    """Torch's functions that count references to a storage and forbid access to it; they take the storage's `_cdata`."""

    count: Callable[[int], int]  # returns the reference count of the storage
    forbid: Callable[[int, str], None]  # makes every access to its data raise RuntimeError with this text


def storage_guard() -> StorageGuard | None:
    """Return torch's own functions that count references to a storage and forbid access to it; None in builds without CUDA."""
    forbid = getattr(torch._C, "_set_storage_data_ptr_access_error_msg", None)
    return None if forbid is None else StorageGuard(torch._C._storage_Use_Count, forbid)


class WeakMemory:
    """The metadata of a tensor and a weak reference to its storage, from which the tensor can be rebuilt."""

    def __init__(self, tensor: Any) -> None:
        from torch.multiprocessing.reductions import StorageWeakRef

        storage = tensor.untyped_storage()
        self.address, self._weak = storage.data_ptr(), StorageWeakRef(storage)
        self._layout = tensor.storage_offset(), tensor.size(), tensor.stride()
        self._dtype, self._is_conj, self._is_neg = tensor.dtype, tensor.is_conj(), tensor.is_neg()

    def is_alive(self) -> bool:
        """Return whether the storage of the tensor has not been freed."""
        return not self._weak.expired()

    def tensor(self) -> Any:
        """Rebuild the tensor on its storage; if that was freed, on the storage of another tensor that is now at its address.

        A CUDA graph, which reads memory by address, would read that tensor. Return None if no tensor is at the address.
        """
        storage = self._storage()
        return None if storage is None else self._read(torch.empty(0, dtype=self._dtype).set_(storage, *self._layout))

    def over(self, tensor: Any) -> Any:
        """Return a view of `tensor`'s memory with the recorded dtype, sizes and strides.

        The view begins at the recorded storage offset, counted from the first element of `tensor`.
        """
        offset, size, stride = self._layout
        return self._read(view_of_memory(tensor, self._dtype, size, stride, offset * self._dtype.itemsize))

    def _read(self, tensor: Any) -> Any:
        return with_bits(tensor, is_conj=self._is_conj, is_neg=self._is_neg)

    def _storage(self) -> Any:
        if self._weak.expired():  # the allocator may have reused the address for another tensor
            plain = (tensor for tensor in gc.get_objects() if type(tensor) in (torch.Tensor, torch.nn.Parameter))
            at_address = [tensor for tensor in plain if _address(tensor) == self.address]
            return at_address[0].untyped_storage() if at_address else None
        return torch.UntypedStorage._new_with_weak_ptr(self._weak.cdata)


def _address(tensor: Any) -> int | None:
    try:
        return int(tensor.untyped_storage().data_ptr())
    except (RuntimeError, NotImplementedError):  # a tensor without storage, such as a sparse one
        return None
