"""Make activation checkpoints draw the same random numbers when they recompute, in Dynamo graphs that run without AOTAutograd.

Torch: from 2.13 on the higher-order operator of a checkpoint leaves the RNG state to AOTAutograd. With
`torch.compile(backend="eager")`, which does not use AOTAutograd, the recomputation uses another dropout mask than the forward
pass, so the gradients are wrong.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule
from torch.utils.checkpoint import checkpoint


def restore_rng_states(gm: GraphModule) -> None:
    """Modify a graph that runs without AOTAutograd, so that its checkpoints restore the RNG state before they recompute.

    Checkpoints with `preserve_rng_state=False` and selective checkpoints (those with a `context_fn`) are not changed.
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
