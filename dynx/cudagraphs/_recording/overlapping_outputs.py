"""Results of a recording that overlap, copied so that the copies do too."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dynx.cudagraphs._runtime.memcpy import extent

_ALIGNED = 16  # bytes: more than any element has


def sharing(outputs: Sequence[Any], indices: Sequence[int]) -> list[list[int]]:
    """Group those of some outputs that have bytes in common; but not what is conjugated or negated when it is read."""
    by_memory = defaultdict[int, list[int]](list)
    for index in indices:
        each = outputs[index]
        address = each.untyped_storage().data_ptr()  # none where it was given back
        if address and each.numel() and not each.is_conj() and not each.is_neg():
            by_memory[address].append(index)
    return [group for each in by_memory.values() for group in _overlapping(outputs, each) if len(group) > 1]


def _overlapping(outputs: Sequence[Any], indices: Sequence[int]) -> list[list[int]]:
    groups, reach = list[list[int]](), -1
    for index in sorted(indices, key=lambda index: _begin(outputs[index])):
        if _begin(outputs[index]) < reach:
            groups[-1].append(index)
        else:
            groups.append([index])
        reach = max(reach, _end(outputs[index]))
    return groups


def copying(tensors: Sequence[torch.Tensor]) -> Callable[[], list[torch.Tensor]]:
    """Give what copies tensors of one memory to another, where they lie as they do here.

    Autograd takes none of them for a view, but sees that what is written to one changes others.
    """
    begin = min(map(_begin, tensors)) // _ALIGNED * _ALIGNED
    end = max(map(_end, tensors))
    slices = [slice(_end(each) - begin) for each in tensors]
    storage, like = tensors[0].untyped_storage(), tensors[0].new_empty(0, dtype=torch.uint8)
    whole = like.set_(storage, begin, (end - begin,), (1,))
    offsets = [(_begin(each) - begin) // each.element_size() for each in tensors]
    layouts = [(each.size(), each.stride(), offset) for each, offset in zip(tensors, offsets, strict=True)]
    dtypes = [each.dtype for each in tensors]

    def copy() -> list[torch.Tensor]:
        memory = whole.clone()
        return [
            memory[part].view(dtype).as_strided(*layout).detach()
            for part, dtype, layout in zip(slices, dtypes, layouts, strict=True)
        ]

    return copy


def _begin(tensor: torch.Tensor) -> int:
    return tensor.storage_offset() * tensor.element_size()


def _end(tensor: torch.Tensor) -> int:
    return _begin(tensor) + extent(tensor) * tensor.element_size()
