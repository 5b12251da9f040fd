"""Clone results that share memory, so that the clones share memory in the same way."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dynx.cudagraphs._runtime.memcpy import extent

_ALIGNMENT = 16  # bytes: no element is larger


def overlapping_groups(outputs: Sequence[Any], indices: Sequence[int]) -> list[list[int]]:
    """Return groups of indices of outputs that have bytes in common.

    Conjugated and negated outputs are left out: their bytes are not their values.
    """
    by_storage = defaultdict[int, list[int]](list)
    for index in indices:
        output = outputs[index]
        address = output.untyped_storage().data_ptr()  # 0 where the memory was released
        if address and output.numel() and not output.is_conj() and not output.is_neg():
            by_storage[address].append(index)
    groups = (group for same_storage in by_storage.values() for group in _overlapping(outputs, same_storage))
    return [group for group in groups if len(group) > 1]


def _overlapping(outputs: Sequence[Any], indices: Sequence[int]) -> list[list[int]]:
    groups, end = list[list[int]](), -1
    for index in sorted(indices, key=lambda index: _begin(outputs[index])):
        if _begin(outputs[index]) < end:
            groups[-1].append(index)
        else:
            groups.append([index])
        end = max(end, _end(outputs[index]))
    return groups


def group_cloner(tensors: Sequence[torch.Tensor]) -> Callable[[], list[torch.Tensor]]:
    """Return a function that clones tensors of one storage together, so that the clones overlap in the same way.

    Autograd treats no clone as a view of another clone. All share a version counter: changing one clone increases it.
    """
    begin = min(map(_begin, tensors)) // _ALIGNMENT * _ALIGNMENT
    end = max(map(_end, tensors))
    storage, like = tensors[0].untyped_storage(), tensors[0].new_empty(0, dtype=torch.uint8)
    whole = like.set_(storage, begin, (end - begin,), (1,))
    offsets = [(_begin(tensor) - begin) // tensor.element_size() for tensor in tensors]
    views = [
        (slice(_end(tensor) - begin), tensor.dtype, (tensor.size(), tensor.stride(), offset))
        for tensor, offset in zip(tensors, offsets, strict=True)
    ]

    def clone() -> list[torch.Tensor]:
        memory = whole.clone()
        return [memory[part].view(dtype).as_strided(*layout).detach() for part, dtype, layout in views]

    return clone


def _begin(tensor: torch.Tensor) -> int:
    """Return the offset of a tensor's first element in its storage, in bytes."""
    return tensor.storage_offset() * tensor.element_size()


def _end(tensor: torch.Tensor) -> int:
    return _begin(tensor) + extent(tensor) * tensor.element_size()
