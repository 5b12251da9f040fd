"""Match the values that a forward graph saves with the inputs of the backward graph."""

from __future__ import annotations

import torch
from torch.fx import Node

from dynx._fx.nodes import placeholders, value_of
from dynx._torch.autograd.partition import Partition


def saved_inputs(partition: Partition) -> dict[Node, Node]:
    """Return the saved node of the forward graph for each input of the backward graph, in the order of the inputs.

    An input has the name of its saved node, unless AOTAutograd renames the input, such as the RNG state that activation
    checkpointing saves for dropout. Renamed inputs are matched by their order.
    """
    outputs = partition.forward.graph.output_node().args[0][partition.user_outputs :]
    saved = list(dict.fromkeys(output for output in outputs if isinstance(output, Node)))
    inputs = placeholders(partition.backward)
    by_name = {node.name: node for node in saved}
    pairs = {node: by_name[node.name] for node in inputs if node.name in by_name}
    matched = set(pairs.values())
    others = [node for node in inputs[: len(outputs)] if node not in pairs]  # tangents follow after saved values
    renamed = [node for node in saved if node not in matched]
    for kind in (True, False):  # tensors, then sizes
        pairs.update(
            zip(
                (node for node in others if isinstance(value_of(node), torch.Tensor) is kind),
                (node for node in renamed if isinstance(value_of(node), torch.Tensor) is kind),
                strict=False,
            )
        )
    return {node: pairs[node] for node in inputs if node in pairs}
