"""Store tensors in host memory."""

from __future__ import annotations

from typing import Any

import torch

from dynx.saved._codec import Codec


def offload() -> Codec:
    """Store CUDA tensors in pinned host memory; the copies to the host and back run asynchronously on the current stream.

    Between forward and backward, the tensors take no device memory. The bus (PCIe) limits the speed of the copies. A graph with
    such copies cannot be captured as a CUDA graph.

    Example:
        >>> import torch
        >>> from dynx.saved import codecs
        >>> codecs.offload().why_not(torch.ones(3))
        'it is on the CPU already'
    """
    return Codec("offload", _pack, _unpack, "any", is_exact=True, refuses=_refuses, code="saved.codecs.offload()")


def _pack(tensor: torch.Tensor) -> Any:
    return tensor.device, torch.ops.dynx.to_host(tensor)


def _unpack(packed: Any) -> torch.Tensor:
    device, stored = packed
    return torch.ops.dynx.to_device(stored, device)


def _refuses(tensor: torch.Tensor) -> str:
    return "" if tensor.device.type == "cuda" else "it is on the CPU already"


def _to_host(tensor: torch.Tensor) -> torch.Tensor:
    is_cuda = tensor.device.type == "cuda"
    stored = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, pin_memory=is_cuda)
    return stored.copy_(tensor, non_blocking=is_cuda)


def _to_device(stored: torch.Tensor, device: torch.device) -> torch.Tensor:
    tensor = torch.empty_strided(stored.shape, stored.stride(), dtype=stored.dtype, device=device)
    return tensor.copy_(stored, non_blocking=True)


def _like_on_host(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")


def _like_on_device(stored: torch.Tensor, device: torch.device) -> torch.Tensor:
    return torch.empty_strided(stored.shape, stored.stride(), dtype=stored.dtype, device=device)


# Custom operators, since inductor compiles asynchronous ATen copies into code that reads the memory too early.
_UNSAFE = (torch.Tag.cudagraph_unsafe,)
torch.library.custom_op("dynx::to_host", _to_host, mutates_args=(), tags=_UNSAFE).register_fake(_like_on_host)
torch.library.custom_op("dynx::to_device", _to_device, mutates_args=(), tags=_UNSAFE).register_fake(_like_on_device)
