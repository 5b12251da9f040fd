"""Tensors that stand for the tensors of a call in another trace: same metadata, marked apart, without the original's values."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_MOST_ON_GPU = 1 << 26  # bytes of one stand-in, which allocates memory; on the CPU, memory that is not written is not used


@dataclass(frozen=True, slots=True, eq=False)
class TensorMetadata:
    """All of a tensor that Dynamo's guards read, to create a tensor of equal metadata when the original is gone.

    `base` is the tensor of which it is a view: Dynamo guards sizes of the base too.
    """

    reference: weakref.ref[Any]
    size: tuple[int, ...]
    stride: tuple[int, ...]
    storage_offset: int
    dtype: Any
    device: Any
    requires_grad: bool
    is_leaf: bool
    is_inference: bool
    marks: dict[str, Any]
    base: TensorMetadata | None


def is_plain(value: Any) -> bool:
    """Return whether a value is a dense tensor that is not of a subclass, not even a parameter."""
    import torch

    return type(value) is torch.Tensor and value.layout is torch.strided and not value.is_quantized and not value.is_nested


def metadata_of(tensor: Any) -> TensorMetadata:
    """Read the metadata of a tensor for which `is_plain` is true."""
    marks = {name: value for name, value in vars(tensor).items() if "dynamo" in name}
    base = tensor._base
    return TensorMetadata(
        weakref.ref(tensor),
        tuple(tensor.size()),
        tensor.stride(),
        tensor.storage_offset(),
        tensor.dtype,
        tensor.device,
        tensor.requires_grad,
        tensor.is_leaf,
        tensor.is_inference(),
        marks,
        metadata_of(base) if base is not None and is_plain(base) and base.dtype == tensor.dtype else None,
    )


def tensor_with(metadata: TensorMetadata) -> Any | None:
    """Return the original if it is alive and unchanged, else a tensor of equal metadata; None if that would be large."""
    import torch

    original = metadata.reference()
    if original is not None and _is_unchanged(original, metadata):
        return original
    size, stride, offset = metadata.size, metadata.stride, metadata.storage_offset
    span = offset + 1 + sum((length - 1) * step for length, step in zip(size, stride, strict=True))
    if metadata.device.type not in ("cpu", "meta") and span * metadata.dtype.itemsize > _MOST_ON_GPU:
        return None
    with torch._C.DisableTorchFunction(), torch.inference_mode(metadata.is_inference), torch.no_grad():
        base = tensor_with(metadata.base) if metadata.base is not None and not metadata.requires_grad else None
        if base is not None and span * metadata.dtype.itemsize <= base.untyped_storage().nbytes():
            return _like(base.as_strided(size, stride, offset), metadata.marks, requires_grad=False, is_leaf=metadata.is_leaf)
        tensor = torch.empty_strided(size, stride, dtype=metadata.dtype, device=metadata.device)
        if offset:
            memory = tensor.new_empty(max(span, 0))
            tensor = tensor.new_empty(0).set_(memory.untyped_storage(), offset, size, stride)
    return _like(tensor, metadata.marks, requires_grad=metadata.requires_grad, is_leaf=metadata.is_leaf)


def twin(tensor: Any) -> Any:
    """Return another tensor object with the memory and the metadata of a tensor for which `is_plain` is true."""
    import torch

    with torch._C.DisableTorchFunction():
        return _like(tensor.detach(), vars(tensor), requires_grad=tensor.requires_grad, is_leaf=tensor.is_leaf)


def _is_unchanged(tensor: Any, metadata: TensorMetadata) -> bool:
    now = metadata_of(tensor)
    names = ("size", "stride", "storage_offset", "dtype", "device", "requires_grad", "is_leaf", "is_inference", "marks")
    return all(getattr(now, name) == getattr(metadata, name) for name in names)


def _like(tensor: Any, attributes: Mapping[str, Any], *, requires_grad: bool, is_leaf: bool) -> Any:
    """Return a new tensor with the place in autograd's graph, and with copies of the attributes, of another tensor."""
    import torch

    if requires_grad:
        tensor.requires_grad_()
        if not is_leaf:  # a result of a function whose backward raises, as nobody calls it
            with torch.enable_grad():
                tensor = torch._C._functions.DelayedError("a twin has no gradient", 1)(tensor)
    for name, value in attributes.items():
        setattr(tensor, name, set(value) if isinstance(value, set) else dict(value) if isinstance(value, dict) else value)
    return tensor
