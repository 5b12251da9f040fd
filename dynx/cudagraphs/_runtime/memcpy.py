"""Copies of inputs and outputs inside of a captured graph, and the search for their memcpy nodes."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import torch

from dynx.cudagraphs._runtime.interface import Capturable, Copy, SelectClones
from dynx.errors import CaptureFailed

Node = TypeVar("Node")
Addresses = tuple[int, int]  # of the target and of the source of a copy


def copy_of(tensor: torch.Tensor) -> torch.Tensor:
    """Copy a tensor to new memory with the same strides."""
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def spread_copies(tensors: Sequence[torch.Tensor], seed: int) -> list[torch.Tensor]:
    """Return copies of tensors in new memory. `seed` sets their order and gaps, so that distances differ between seeds."""
    rng, copies, gaps = random.Random(seed), dict[int, torch.Tensor](), list[torch.Tensor]()
    for index in rng.sample(range(len(tensors)), len(tensors)):
        tensor = tensors[index]
        copies[index] = copy_of(tensor)
        size = 512 * rng.randrange(1, 1000) + (_LARGE if tensor.nbytes > _LARGE else 0)  # from the same segments as the copy
        gaps.append(torch.empty(size, dtype=torch.uint8, device=tensor.device))
    return [copies[index] for index in range(len(tensors))]


_LARGE = 1 << 20  # bytes; torch's allocator takes larger tensors from other segments than smaller ones


def run_with_copies(
    function: Capturable, sources: Sequence[torch.Tensor], select_clones: SelectClones
) -> tuple[Any, list[Copy], list[Copy]]:
    """Run a function on copies of the inputs, and clone selected outputs; return the outputs, the copies and the clones."""
    copies = [(copy_of(source), source) for source in sources]
    outputs = function([target for target, _ in copies])
    clones = [(torch.empty_like(output), output) for output in select_clones(outputs)]
    for target, source in clones:
        target.copy_(source)
    return outputs, copies, clones


class CopiesNotFound(CaptureFailed):
    """Raised if the graph has no memcpy nodes for some copies: torch may capture a small copy as a kernel."""


def find_copies(node_at: Mapping[Addresses, Node], copies: Sequence[Copy]) -> list[Node]:
    """Return the memcpy node of each copy, given all nodes by their addresses. Raises CopiesNotFound if a copy has no node.

    The target address does not suffice to identify the node: the captured function may copy other tensors to that address.
    """
    expected = [(target.data_ptr(), source.data_ptr()) for target, source in copies]
    if missing := [str(index) for index, addresses in enumerate(expected) if addresses not in node_at]:
        raise CopiesNotFound(f"the graph has no memcpy node for the copies of the tensors with indices {', '.join(missing)}")
    return [node_at[addresses] for addresses in expected]


def extent(tensor: torch.Tensor) -> int:
    """Return how many elements of memory a nonempty tensor spans, from its first to its last element, gaps included."""
    return sum((size - 1) * stride for size, stride in zip(tensor.size(), tensor.stride(), strict=True)) + 1
