"""Copy tensors; the copies of tensors that share memory share memory too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import is_traceable_wrapper_subclass


class TensorCopier:
    """Copies tensors; `in_double` converts floating-point ones to float64 or complex128. A shared storage is copied once."""

    def __init__(self, *, in_double: bool = False) -> None:
        self._in_double = in_double
        self._storages: dict[tuple[int, torch.dtype | None], tuple[Any, Any]] = {}  # by id: the copy and the original

    def copy(self, tensor: torch.Tensor, copy_base: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        """Return a tensor with the same elements, sizes, strides and class; the copy of a view is a view of the copied base.

        The copy of a tensor with a `grad_fn` has its own memory and starts a new autograd graph.
        """
        cls: Any = type(tensor)
        if is_lazy(tensor):
            return cls(requires_grad=tensor.requires_grad, device=tensor.device, dtype=tensor.dtype)
        if tensor.is_nested:
            return torch.Tensor.clone(tensor.detach()).requires_grad_(tensor.requires_grad)
        if tensor.requires_grad and not tensor.is_leaf and cls is torch.Tensor:
            with torch.enable_grad():  # clone, since operators must not write to a leaf
                return tensor.detach().clone().to(self._dtype_of(tensor)).requires_grad_().clone()
        with torch.no_grad():
            if is_traceable_wrapper_subclass(tensor):
                copy = self._copy_wrapper(tensor, copy_base)
            elif tensor.layout is not torch.strided or tensor.is_quantized:
                copy = torch.Tensor.clone(tensor.detach()).to(self._dtype_of(tensor))
            elif _is_plain_view(tensor):
                copy = copy_base(tensor._base).as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())
            else:
                copy = self._in_copied_storage(tensor)
                if cls not in (torch.Tensor, torch.nn.Parameter):
                    copy = torch.Tensor._make_subclass(cls, copy)
        if cls is torch.nn.Parameter:
            return torch.nn.Parameter(copy, tensor.requires_grad)
        return copy.requires_grad_(tensor.requires_grad)

    def _in_copied_storage(self, tensor: torch.Tensor) -> torch.Tensor:
        storage, dtype = tensor.untyped_storage(), self._dtype_of(tensor)
        key = storage._cdata, tensor.dtype if dtype is not tensor.dtype else None
        if key not in self._storages:
            copied = storage.clone()
            if dtype is not tensor.dtype:
                elements = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(storage)
                copied = elements.to(dtype).untyped_storage()
            self._storages[key] = copied, storage
        empty = torch.empty(0, dtype=dtype, device=tensor.device)
        copy = empty.set_(self._storages[key][0], tensor.storage_offset(), tensor.size(), tensor.stride())
        if tensor.is_conj():
            copy = copy.conj()
        return torch._neg_view(copy) if tensor.is_neg() else copy

    def _dtype_of(self, tensor: torch.Tensor) -> torch.dtype:
        if not self._in_double or not (tensor.is_floating_point() or tensor.is_complex()):
            return tensor.dtype
        return torch.complex128 if tensor.is_complex() else torch.float64

    def _copy_wrapper(self, tensor: Any, copy_inner: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        """Copy a wrapper subclass by `__tensor_flatten__` and `__tensor_unflatten__`, as torch.compile does."""
        names, context = tensor.__tensor_flatten__()
        inner = {name: copy_inner(getattr(tensor, name)) for name in names}
        return type(tensor).__tensor_unflatten__(inner, context, tensor.size(), tensor.stride())


def _is_plain_view(tensor: torch.Tensor) -> bool:
    base = tensor._base
    if base is None or tensor.requires_grad or base.requires_grad or type(base) is not torch.Tensor:
        return False
    return base.dtype is tensor.dtype and not tensor.is_conj() and not tensor.is_neg()
