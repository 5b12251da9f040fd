"""Run the activation checkpoints of a Dynamo graph without AOTAutograd: the recomputation draws the same random numbers again.

Torch: from 2.13 on the higher-order operator of a checkpoint leaves the state of random numbers to AOTAutograd, so that
`torch.compile(backend="eager")` computes gradients with another dropout mask than the forward pass (2.13, 2.15).
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule
from torch.utils.checkpoint import checkpoint


def restore_rng_states(gm: GraphModule) -> None:
    """Let the checkpoints of a graph, which is not compiled further, restore the RNG state before they recompute.

    Checkpoints with `preserve_rng_state=False` stay as they are, and so do selective ones: those with a `context_fn`.
    """
    for node in list(gm.graph.nodes):
        if node.op == "get_attr" and isinstance(body := getattr(gm, str(node.target), None), GraphModule):
            restore_rng_states(body)
        if node.target is not torch.ops.higher_order.tag_activation_checkpoint:
            continue
        body = getattr(gm, str(node.args[0].target))
        if "_checkpoint_context_fn" not in body.meta and node.kwargs.get("preserve_rng_state", True):
            node.target = _checkpoint
    gm.recompile()


def _checkpoint(body: GraphModule, *args: Any, **kwargs: Any) -> Any:
    return checkpoint(body, *args, **{**kwargs, "use_reentrant": False, "preserve_rng_state": True})
