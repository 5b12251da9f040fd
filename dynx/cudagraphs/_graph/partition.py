"""Partition a graph around the operators that cannot be captured, into as few parts as possible."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from operator import getitem

import torch
from torch.fx import GraphModule, Node

from dynx._fx.effects import effects_of


def partition(gm: GraphModule, unsafe: Collection[Node]) -> list[list[Node]]:
    """Partition nodes into parts that run one after another, each with only capturable or only uncapturable nodes.

    Each part takes all nodes of its kind whose predecessors have run, which gives the fewest parts. Nodes of a part
    keep their order. So do all nodes that draw random numbers, and all nodes that use the same memory if one writes to it.
    """
    nodes = [node for node in gm.graph.nodes if node.op not in ("placeholder", "get_attr", "output")]
    before, uncaptured = _predecessors(gm, nodes), set(unsafe)
    for node in nodes:  # an operator's tuple of results does not leave its part, only the elements do
        if node.target is getitem and node.args[0] in uncaptured:
            uncaptured.add(node)
    candidates = [_grouped(nodes, before, uncaptured, is_safe=first) for first in (True, False)]
    return min(candidates, key=len)


def _grouped(
    nodes: Sequence[Node], before: dict[Node, set[Node]], unsafe: Collection[Node], *, is_safe: bool
) -> list[list[Node]]:
    """Group nodes into parts, capturable and uncapturable in turn; capturable first if `is_safe`, unless that part is empty.

    `unsafe` are the uncapturable nodes; `before` holds, for each node, the nodes that must run before it.
    """
    parts: list[list[Node]] = []
    remaining, done = list(nodes), set[Node]()
    while remaining:
        part: list[Node] = []
        for node in remaining:
            if (node not in unsafe) is is_safe and before[node] <= done:
                part.append(node)
                done.add(node)
        remaining = [node for node in remaining if node not in done]
        if part:
            parts.append(part)
        is_safe = not is_safe
    return parts


def _predecessors(gm: GraphModule, nodes: Sequence[Node]) -> dict[Node, set[Node]]:
    """Return, for each node, the nodes that must run before it."""
    inside = set(nodes)
    before = {node: {source for source in node.all_input_nodes if source in inside} for node in nodes}
    random = [node for node in nodes if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())]
    for earlier, later in (*pairwise(random), *_memory_pairs(gm, nodes)):
        before[later].add(earlier)
    return before


def _memory_pairs(gm: GraphModule, nodes: Sequence[Node]) -> Iterator[tuple[Node, Node]]:
    """Yield pairs of nodes whose order must be kept, since one of them writes to memory that the other uses."""
    users: dict[Node, list[tuple[Node, bool]]] = defaultdict(list)  # by the node that allocated the memory
    effects = effects_of(gm)
    for node in nodes:
        reads, writes = effects[node]
        for memory in reads | writes:
            is_write = memory in writes
            for other, other_writes in users[memory]:
                if is_write or other_writes:
                    yield other, node
            users[memory].append((node, is_write))
