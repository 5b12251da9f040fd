"""Sizes that are padded to one of a few, so that few recordings serve many sizes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from dynx.cudagraphs._functions.first_call import changes_of
from dynx.cudagraphs._functions.recorded_function import Recorded
from dynx.errors import UsageError

Buckets = Mapping[int, Sequence[int]]
Sizes = Mapping[int, int]


class Bucketed:
    """Pads tensors along some dimensions with zeros, calls a recorded function, and cuts its results.

    The size of a dimension is that of the first tensor that has it; other arguments of that size are padded too, and results of
    the padded size are cut. Sizes above the largest bucket run as they are.
    """

    def __init__(self, recorded: Recorded, buckets: Buckets) -> None:
        self._recorded = recorded
        self._writes: bool | None = None  # None: this is to be seen
        self._buckets = {dim: sorted(sizes) for dim, sizes in buckets.items()}

    def record(self, *args: Any, **kwargs: Any) -> None:
        """Record all buckets, the largest first: the others find their memory in what it needs in between."""
        here = self._sizes((args, kwargs))
        for sizes in product(*(reversed(each) for each in self._buckets.values())):
            given, keywords = _resized((args, kwargs), here, dict(zip(self._buckets, sizes, strict=True)))
            given, keywords = tree_map(_as_padded, (given, keywords))
            self._recorded.record(*given, **keywords)
        self._writes = self._recorded.writes

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        here = self._sizes((args, kwargs))
        buckets = {dim: self._bucket(dim, size) for dim, size in here.items()}
        for dim in (dim for dim, size in buckets.items() if size == 0):
            what = f"size {here[dim]} of dimension {dim} is above the largest bucket"
            self._recorded.tell_once(f"{self._recorded.name} runs uncaptured: {what}")
            return self._recorded.run_uncaptured(*args, **kwargs)
        if here != buckets and self._writes is not False:  # what is padded is a copy: changes would be lost
            changes = changes_of(list(_tensors((args, kwargs))))
            result = self._recorded.run_uncaptured(*args, **kwargs)
            self._writes = self._writes or bool(changes())
            return result
        given, keywords = _resized((args, kwargs), here, buckets)
        return _resized(self._recorded(*given, **keywords), buckets, here)

    def _sizes(self, arguments: Any) -> dict[int, int]:
        found = {}
        for dim in self._buckets:
            size = next((each.size(dim) for each in _tensors(arguments) if each.dim() > dim), None)
            if size is None:
                raise UsageError(f"no argument has a dimension {dim}, of which there are buckets")
            found[dim] = size
        return found

    def _bucket(self, dim: int, size: int) -> int:
        """Give the smallest bucket that is large enough; 0 where there is none."""
        sizes = self._buckets[dim]
        place = bisect_left(sizes, size)
        return sizes[place] if place < len(sizes) else 0

    @property
    def recordings(self) -> list[Any]:
        return self._recorded.recordings

    def close(self) -> None:
        self._recorded.close()


def check_buckets(buckets: Buckets, outputs: str, max_recordings: int) -> None:
    """Raise UsageError for what buckets do not go with."""
    if outputs != "clone":
        raise UsageError(f"outputs={outputs!r} with buckets: these share memory, so results have to be copied\n  use 'clone'")
    count = len(list(product(*buckets.values())))
    if count > max_recordings:
        raise UsageError(f"buckets make {count} recordings, max_recordings={max_recordings}\n  give a larger max_recordings")


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    return (each for each in tree_leaves(values) if isinstance(each, torch.Tensor))


def _resized(values: Any, sizes: Sizes, wanted: Sizes) -> Any:
    """Pad or cut the tensors that have these sizes to others."""
    return values if sizes == wanted else tree_map(partial(_resize, sizes=sizes, wanted=wanted), values)


def _resize(value: Any, sizes: Sizes, wanted: Sizes) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    for dim, size in sizes.items():
        if value.dim() > dim and value.size(dim) == size:
            value = _padded(value, dim, wanted[dim]) if wanted[dim] > size else value.narrow(dim, 0, wanted[dim])
    return value


def _as_padded(value: Any) -> Any:
    """Lay a tensor out as one that is padded."""
    return value.contiguous() if isinstance(value, torch.Tensor) else value


def _padded(tensor: torch.Tensor, dim: int, size: int) -> torch.Tensor:
    shape = [*tensor.size()]
    shape[dim] = size
    padded = tensor.new_zeros(shape)
    padded.narrow(dim, 0, tensor.size(dim)).copy_(tensor)
    return padded
