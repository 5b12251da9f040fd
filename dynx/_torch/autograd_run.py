"""What the backward pass under way computes.

Torch: `torch._C._will_engine_execute_node`, alike in 2.11, 2.13 and 2.15; `torch.autograd.graph.get_gradient_edge` is public.
"""

from __future__ import annotations

from typing import Any

import torch


def accumulator_of(leaf: torch.Tensor) -> Any:
    """Give the node that adds to the gradient of a leaf, which lives as long as it is held."""
    return torch.autograd.graph.get_gradient_edge(leaf).node


def is_wanted(node: Any) -> bool:
    """Tell whether the backward pass under way comes to a node: not where gradients of other tensors only were asked for."""
    return bool(torch._C._will_engine_execute_node(node))
