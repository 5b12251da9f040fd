"""Copies of tensors, and telling those that were captured for inputs from those that a graph does itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import torch

from dynx.cudagraphs._runtime.interface import Copied, Copy, Function
from dynx.errors import CaptureFailed

Node = TypeVar("Node")
Addresses = tuple[int, int]  # to the first from the second


def copy_of(tensor: torch.Tensor) -> torch.Tensor:
    """Copy a tensor with its strides."""
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def run_with_copies(function: Function, sources: Sequence[torch.Tensor], results: Copied) -> tuple[Any, list[Copy], list[Copy]]:
    """Copy inputs, run a function on the copies, copy some of its results; gives what it gave, and both sorts of copies."""
    copies = [(copy_of(each), each) for each in sources]
    outputs = function([target for target, _ in copies])
    handed = [(torch.empty_like(each), each) for each in results(outputs)]
    for target, source in handed:
        target.copy_(source)
    return outputs, copies, handed


class CopiesNotFound(CaptureFailed):
    """Copies were not captured as such: small ones may become kernels."""


def copies_among(found: Iterable[tuple[Addresses, Node]], copies: Sequence[Copy]) -> list[Node]:
    """Find copies by both addresses, since a graph may write to the same place again.

    Raises CopiesNotFound where one is not there.
    """
    nodes = dict(found)
    wanted = [(target.data_ptr(), source.data_ptr()) for target, source in copies]
    if missing := [str(number) for number, each in enumerate(wanted) if each not in nodes]:
        raise CopiesNotFound(f"inputs {', '.join(missing)} were not captured as copies")
    return [nodes[each] for each in wanted]


def extent(tensor: torch.Tensor) -> int:
    """Count the elements of memory from the first to the last of a tensor that has some."""
    return sum((size - 1) * stride for size, stride in zip(tensor.size(), tensor.stride(), strict=True)) + 1
