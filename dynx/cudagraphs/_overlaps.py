"""Results that share memory, copied so that the copies share memory too."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import torch

_ALIGNED = 16  # bytes: more than any element has


def sharing(outputs: Sequence[Any], indices: Sequence[int]) -> list[list[int]]:
    """Group those of some outputs that lie in one memory, where that are more than one."""
    by_memory = defaultdict[int, list[int]](list)
    for index in indices:
        if address := outputs[index].untyped_storage().data_ptr():  # none where it was given back
            by_memory[address].append(index)
    return [each for each in by_memory.values() if len(each) > 1]


def copying(tensors: Sequence[torch.Tensor]) -> Callable[[], list[torch.Tensor]]:
    """Give what copies tensors of one memory to another, where they lie as they do here. Autograd takes none for a view."""
    begin = min(map(_begin, tensors)) // _ALIGNED * _ALIGNED
    end = max(map(_end, tensors))
    storage, like = tensors[0].untyped_storage(), tensors[0].new_empty(0, dtype=torch.uint8)
    whole = like.set_(storage, begin, (end - begin,), (1,))
    places = [(each, (_begin(each) - begin) // each.element_size(), each.size(), each.stride()) for each in tensors]

    def copy() -> list[torch.Tensor]:
        memory = whole.clone().untyped_storage()
        return [each.new_empty(0).set_(memory, offset, size, stride) for each, offset, size, stride in places]

    return copy


def _begin(tensor: torch.Tensor) -> int:
    return tensor.storage_offset() * tensor.element_size()


def _end(tensor: torch.Tensor) -> int:
    reach = sum((size - 1) * stride for size, stride in zip(tensor.size(), tensor.stride(), strict=True)) + 1
    return _begin(tensor) + reach * tensor.element_size()
