"""What the backward pass under way computes, and the nodes that add to gradients in it.

Torch: `torch._C._will_engine_execute_node`; `VariableHooks::set_data`, which forgets the node of a leaf whose dtype changes;
alike in 2.11, 2.13 and 2.15. `torch.autograd.graph.get_gradient_edge` is public.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch


def accumulator_of(leaf: torch.Tensor) -> Any:
    """Give the node that adds to the gradient of a leaf, which lives as long as it is held."""
    return torch.autograd.graph.get_gradient_edge(leaf).node


def renew_accumulators(leaves: Iterable[torch.Tensor]) -> None:
    """Have autograd make the nodes anew that add to the gradients of leaves; graphs that there are keep theirs.

    A node belongs to the stream on which it was made, and lives as long as a graph that leads to it, also one from long
    before a capture: that would have to wait for the other stream, which CUDA refuses. Hooks on a node itself go with it.
    """
    for each in leaves:
        memory = each.data
        if type(memory) is torch.Tensor:
            try:
                each.data = memory.new_empty(0, dtype=torch.float32 if memory.dtype is torch.float64 else torch.float64)
            finally:
                each.data = memory


def is_wanted(node: Any) -> bool:
    """Tell whether the backward pass under way comes to a node: not where gradients of other tensors only were asked for."""
    return bool(torch._C._will_engine_execute_node(node))
