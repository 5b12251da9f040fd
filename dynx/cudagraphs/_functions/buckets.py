"""Pad tensors to the next of a few configured sizes (buckets), so that few recordings serve many sizes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import torch
from torch.utils._pytree import tree_map, tree_map_only

from dynx._reading.tensors import tensors_in
from dynx._torch.autograd.transforms import is_transformed
from dynx.cudagraphs._functions.first_call import change_detector
from dynx.cudagraphs._functions.recorded_function import RecordedFunction
from dynx.cudagraphs._recording.replayable import Replayable
from dynx.errors import UsageError

Buckets = Mapping[int, Sequence[int]]  # sizes by dimension
Sizes = Mapping[int, int]  # one size by dimension


class Bucketed:
    """A recorded function whose arguments are padded with zeros to the next bucket size, and whose results are narrowed back.

    The size of a dimension is read from the first tensor argument that has the dimension. All arguments of this size in the
    dimension are padded, and results of the padded size are narrowed. A call runs uncaptured if a size is above the largest
    bucket, or if it needs padding and the function mutates arguments. Without examples, the first call that needs padding also
    runs uncaptured, to show whether the function mutates arguments.
    """

    def __init__(self, recorded: RecordedFunction, buckets: Buckets) -> None:
        self._recorded = self.forward = recorded
        self._mutates_arguments: bool | None = None  # None: not known yet
        self._buckets = {dim: sorted(sizes) for dim, sizes in buckets.items()}

    def record(self, *args: Any, **kwargs: Any) -> None:
        """Record all bucket sizes, the largest first: the recordings of smaller sizes then reuse its memory."""
        sizes = self._sizes((args, kwargs))
        for bucket in product(*(reversed(bucket_sizes) for bucket_sizes in self._buckets.values())):
            padded = _resized((args, kwargs), sizes, dict(zip(self._buckets, bucket, strict=True)))
            # contiguous, as padded tensors are
            padded_args, padded_kwargs = tree_map_only(torch.Tensor, lambda tensor: tensor.contiguous(), padded)
            self._recorded.record(*padded_args, **padded_kwargs)
        self._mutates_arguments = self._recorded.mutates_arguments

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if is_transformed():  # by torch.func: the recorded function runs uncaptured, so that it needs no padding
            return self._recorded(*args, **kwargs)
        sizes = self._sizes((args, kwargs))
        buckets = {dim: self._bucket(dim, size) for dim, size in sizes.items()}
        for dim in (dim for dim, size in buckets.items() if size == 0):
            why = f"size {sizes[dim]} of dimension {dim} is above the largest bucket"
            self._recorded.warn_once(f"{self._recorded.name} runs uncaptured: {why}")
            return self._recorded.run_uncaptured(*args, **kwargs)
        if sizes != buckets and self._mutates_arguments is not False:  # padding copies: mutations of the copy would be lost
            changed = change_detector(tensors_in((args, kwargs)))
            result = self._recorded.run_uncaptured(*args, **kwargs)
            self._mutates_arguments = self._mutates_arguments or bool(changed())
            return result
        padded_args, padded_kwargs = _resized((args, kwargs), sizes, buckets)
        return _resized(self._recorded(*padded_args, **padded_kwargs), buckets, sizes)

    def _sizes(self, arguments: Any) -> dict[int, int]:
        sizes = {}
        for dim in self._buckets:
            size = next((tensor.size(dim) for tensor in tensors_in(arguments) if tensor.dim() > dim), None)
            if size is None:
                raise UsageError(
                    f"no argument has a dimension {dim}, for which buckets are configured\n  leave {dim} out of buckets"
                )
            sizes[dim] = size
        return sizes

    def _bucket(self, dim: int, size: int) -> int:
        """Return the smallest bucket of a dimension that is at least `size`; 0 if there is none."""
        sizes = self._buckets[dim]
        index = bisect_left(sizes, size)
        return sizes[index] if index < len(sizes) else 0

    @property
    def recordings(self) -> list[Replayable]:
        return self._recorded.recordings

    def close(self) -> None:
        """Release the memory of the recordings; the next calls record again."""
        self._recorded.close()


def check_buckets(buckets: Buckets, outputs: str, max_recordings: int) -> None:
    """Raise UsageError if `outputs` is not "clone", or if buckets need more recordings than `max_recordings`."""
    if outputs != "clone":
        raise UsageError(
            f"outputs={outputs!r} does not work with buckets: graphs of all buckets share memory, so results must be cloned\n"
            "  use outputs='clone'"
        )
    count = len(list(product(*buckets.values())))
    if count > max_recordings:
        raise UsageError(
            f"buckets need {count} recordings, but max_recordings is {max_recordings}\n  pass a larger max_recordings"
        )


def _resized(values: Any, sizes: Sizes, target: Sizes) -> Any:
    """Return `values` with resized tensors: each dimension of size `sizes[dim]` is padded or narrowed to `target[dim]`."""
    return values if sizes == target else tree_map(partial(_resize, sizes=sizes, target=target), values)


def _resize(value: Any, sizes: Sizes, target: Sizes) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    for dim, size in sizes.items():
        if value.dim() > dim and value.size(dim) == size:
            value = _padded(value, dim, target[dim]) if target[dim] > size else value.narrow(dim, 0, target[dim])
    return value


def _padded(tensor: torch.Tensor, dim: int, size: int) -> torch.Tensor:
    shape = [*tensor.size()]
    shape[dim] = size
    padded = tensor.new_zeros(shape)
    padded.narrow(dim, 0, tensor.size(dim)).copy_(tensor)
    return padded
