"""Allocate tensors of a known layout without the dispatcher, in half of the time of `torch.empty_like`.

Torch: `torch._C._dynamo.guards._empty_strided_cpu` and `_empty_strided_cuda`, with which the code that inductor generates
allocates its results. They allocate on the current device.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from dynx._torch.capabilities import require
from dynx._torch.ops.cuda_graphs import current_device


def allocator_like(tensor: Any) -> Callable[[], Any]:
    """Return a function that allocates uninitialized tensors with the sizes, strides, dtype and device of a dense tensor."""
    import torch

    require("allocate_on_cpu", "allocate_on_cuda")
    from torch._C._dynamo.guards import _empty_strided_cpu, _empty_strided_cuda  # type: ignore[attr-defined]

    layout = tuple(tensor.size()), tensor.stride(), tensor.dtype
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.device.type not in ("cpu", "cuda"):
        return partial(torch.empty_like, tensor)
    if tensor.device.type == "cpu":
        return partial(_empty_strided_cpu, *layout)
    allocate: Callable[[], Any] = partial(_empty_strided_cuda, *layout)
    device, get_device = tensor.device.index, current_device()

    def allocate_beside_other_devices() -> Any:
        return allocate() if get_device() == device else torch.empty_like(tensor)

    return allocate if torch.cuda.device_count() == 1 else allocate_beside_other_devices
