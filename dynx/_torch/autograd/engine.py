"""Read and replace `AccumulateGrad` nodes, and find out whether the autograd engine will execute a node.

Torch: `torch._C._will_engine_execute_node`, and `VariableHooks::set_data`, which drops the `AccumulateGrad` node of a leaf when
its dtype changes. `torch.autograd.graph.get_gradient_edge` is public.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch


def accumulator_of(leaf: torch.Tensor) -> Any:
    """Return the `AccumulateGrad` node of a leaf tensor; autograd frees the node once nothing references it."""
    return torch.autograd.graph.get_gradient_edge(leaf).node


def renew_accumulators(leaves: Iterable[torch.Tensor]) -> None:
    """Make autograd create new `AccumulateGrad` nodes for leaf tensors; existing autograd graphs keep the old nodes.

    A node belongs to the CUDA stream on which it was created, and lives as long as an autograd graph references it. During a
    CUDA graph capture, a backward pass through a node from before the capture would wait for the stream of that node, which
    CUDA refuses. Hooks that are registered on the old node itself are lost.
    """
    for leaf in leaves:
        memory = leaf.data
        if type(memory) is torch.Tensor:
            try:
                leaf.data = memory.new_empty(0, dtype=torch.float32 if memory.dtype is torch.float64 else torch.float64)
            finally:
                leaf.data = memory


def will_execute(node: Any) -> bool:
    """Return whether the running backward pass will execute an autograd node; `backward(inputs=...)` may exclude it."""
    return bool(torch._C._will_engine_execute_node(node))
