"""Fill memory that operators allocate without writing to it, such as `torch.empty`: its bytes are undefined.

Two runs that differ only in what this memory is filled with show which results depend on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch.utils._pytree import tree_leaves

from dynx._reading.tensors import has_memory
from dynx.cudagraphs._operator_mode import OperatorMode

Fill = Literal["zeros", "garbage"]

_aten = torch.ops.aten
_ALLOCATE = {  # by packets: overloads differ in how sizes, names or the result are passed
    *(_aten.empty, _aten.empty_like, _aten.empty_permuted, _aten.empty_strided, _aten.new_empty, _aten.new_empty_strided)
}
_RESIZE = {_aten.resize_, _aten.resize_as_}


class FilledMemory(OperatorMode):
    """A dispatch mode that fills uninitialized memory with zeros, or with garbage: NaN, or 1 (a valid index) for integers."""

    def __init__(self, fill: Fill) -> None:
        super().__init__()
        self._fill = fill

    def __torch_dispatch__(self, operator: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        packet = getattr(operator, "overloadpacket", None)
        begin = args[0].untyped_storage().nbytes() if packet in _RESIZE and has_memory(args[0]) else 0
        result = operator(*args, **(kwargs or {}))
        for tensor in filter(has_memory, tree_leaves(result)) if packet in _ALLOCATE or packet in _RESIZE else ():
            self._fill_memory(tensor, begin)
        return result

    def _fill_memory(self, tensor: torch.Tensor, begin: int) -> None:
        """Fill the storage of a tensor from byte `begin` on, including gaps between its elements, which views may read."""
        storage, dtype = tensor.untyped_storage(), torch.uint8 if tensor.is_quantized else tensor.dtype
        with torch.inference_mode(tensor.is_inference()):
            memory = torch.empty(0, dtype=dtype, device=tensor.device).set_(storage)
            memory[begin // memory.element_size() :].fill_(0 if self._fill == "zeros" else _garbage(dtype))


def _garbage(dtype: torch.dtype) -> float:
    return float("nan") if dtype.is_floating_point or dtype.is_complex else 1
