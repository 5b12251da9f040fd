"""Which nodes of a graph run together: as few parts as the operators force that cannot be captured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from operator import getitem

import torch
from torch.fx import GraphModule, Node

from dynx.cudagraphs._graph.effects import effects_of


def parts_of(gm: GraphModule, unsafe: Collection[Node]) -> list[list[Node]]:
    """Divide the nodes of a graph into parts that run one after another, each all safe or all unsafe.

    Each part takes all nodes that may run by then, which makes the fewest parts there can be. Nodes of a part keep their order;
    so do those that draw random numbers, and those that write to memory with all that read it.
    """
    nodes = [each for each in gm.graph.nodes if each.op not in ("placeholder", "get_attr", "output")]
    before, uncaptured = _before(gm, nodes), set(unsafe)
    for node in nodes:  # several results of an operator do not leave its part together
        if node.target is getitem and node.args[0] in uncaptured:
            uncaptured.add(node)
    found = [_grouped(nodes, before, uncaptured, is_safe=first) for first in (True, False)]
    return min(found, key=len)


def _grouped(
    nodes: Sequence[Node], before: dict[Node, set[Node]], unsafe: Collection[Node], *, is_safe: bool
) -> list[list[Node]]:
    parts: list[list[Node]] = []
    left, done = list(nodes), set[Node]()
    while left:
        part: list[Node] = []
        for node in left:
            if (node not in unsafe) is is_safe and before[node] <= done:
                part.append(node)
                done.add(node)
        left = [each for each in left if each not in done]
        if part:
            parts.append(part)
        is_safe = not is_safe
    return parts


def _before(gm: GraphModule, nodes: Sequence[Node]) -> dict[Node, set[Node]]:
    """Give what has to run before each node."""
    known = set(nodes)
    before = {node: {each for each in node.all_input_nodes if each in known} for node in nodes}
    for earlier, later in (*_random_pairs(nodes), *_memory_pairs(gm, nodes)):
        before[later].add(earlier)
    return before


def _random_pairs(nodes: Sequence[Node]) -> Iterator[tuple[Node, Node]]:
    random = [each for each in nodes if torch.Tag.nondeterministic_seeded in getattr(each.target, "tags", ())]
    yield from pairwise(random)


def _memory_pairs(gm: GraphModule, nodes: Sequence[Node]) -> Iterator[tuple[Node, Node]]:
    """Give who has to wait for whom, since one of them writes to memory that the other uses."""
    users: dict[Node, list[tuple[Node, bool]]] = defaultdict(list)  # by the node that made the memory
    effects = effects_of(gm)
    for node in nodes:
        reads, writes = effects[node]
        for memory in reads | writes:
            is_write = memory in writes
            for other, other_writes in users[memory]:
                if is_write or other_writes:
                    yield other, node
            users[memory].append((node, is_write))
