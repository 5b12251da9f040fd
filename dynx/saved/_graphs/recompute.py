"""Find the nodes that compute a saved tensor again, for the codec `recompute`."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import torch
from torch.fx import Node

from dynx._torch.ops.schemas import schema_of

_MAX_NODES = 1000


class Chain(NamedTuple):
    """The forward nodes that backward runs again to recompute a saved tensor, and the nodes whose values they read.

    Both are in the order of the forward graph.
    """

    nodes: tuple[Node, ...]
    sources: tuple[Node, ...]  # saved tensors, and inputs of the forward graph


def chain_of(node: Node, saved: Collection[Node], mutated: Collection[Node]) -> Chain | str:
    """Return the nodes that compute `node` from saved tensors and graph inputs; a str with the reason if that is impossible.

    It is impossible to recompute from inputs that forward mutates, such as running statistics: their values differ in backward.
    """
    order = {other: index for index, other in enumerate(node.graph.nodes)}
    found, sources, waiting = {node}, set[Node](), [node]
    while waiting:
        current = waiting.pop()
        if reason := _why_not(current):
            return reason
        for source in current.all_input_nodes:
            if source in mutated:
                return f"it is computed from {source.name}, an input that the function changes in place"
            if source.op == "placeholder" or source in saved:
                sources.add(source)
            elif source not in found:
                found.add(source)
                waiting.append(source)
        if len(found) > _MAX_NODES:
            return f"it takes more than {_MAX_NODES} operators to compute"
    return Chain(tuple(sorted(found, key=order.__getitem__)), tuple(sorted(sources, key=order.__getitem__)))


def _why_not(node: Node) -> str:
    """Return why an operator cannot run a second time with the same result, or an empty string."""
    if node.op == "get_attr":
        return ""
    schema = schema_of(node.target)
    family = getattr(node.target, "namespace", "")
    if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
        return f"{node.target} draws random numbers, which backward would draw anew"
    if schema is not None and schema.is_mutable:
        return f"{node.target} writes to memory"
    if "c10d" in family:
        return f"{node.target} communicates with other ranks"
    if isinstance(node.target, torch._ops.HigherOrderOperator):  # some draw random numbers, and save the RNG state
        return f"{node.target} is a higher-order operator"
    return ""
