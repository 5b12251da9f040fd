"""Simulate the memory that a graph allocates when its nodes run in their order."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import torch
from torch.fx import GraphModule, Node

from dynx._fx.effects import Memory, effects_of, memory_of
from dynx._fx.nodes import nbytes, tensors_of


class Peak(NamedTuple):
    """The moment at which the most bytes are allocated."""

    bytes: int
    nodes: tuple[Node, ...]  # the nodes whose results are allocated then, in the order of the graph


def peak_of(gm: GraphModule, held: Collection[Node] = ()) -> Peak:
    """Return the moment at which the most bytes are allocated while a graph runs node by node.

    A result is allocated by its node. Results and inputs are freed after the last node that uses them or a view of them, as in
    a boxed call. Outputs are kept. Views need no memory. Memory that an operator needs only while it runs is not counted.
    `held` are inputs that are never freed, such as parameters; they are not counted. A dynamic size counts with its hint.
    """
    nodes = list(gm.graph.nodes)
    memory = memory_of(gm)
    last = _last_uses(gm, memory)
    freed_at: dict[int, list[Node]] = {}
    for allocator, index in last.items():
        freed_at.setdefault(index, []).append(allocator)
    is_counted = {node for node in nodes if node not in held and node in memory.get(node, ())}
    live = {node: _bytes_of(node) for node in nodes if node.op == "placeholder" and node in is_counted}
    total = sum(live.values())
    peak = Peak(total, tuple(live))
    for index, node in enumerate(nodes):
        if node.op == "call_function" and node in is_counted:
            live[node] = _bytes_of(node)
            total += live[node]
            if total > peak.bytes:
                peak = Peak(total, tuple(live))
        total -= sum(live.pop(allocator, 0) for allocator in freed_at.get(index, ()))
    return peak


def _last_uses(gm: GraphModule, memory: dict[Node, Memory]) -> dict[Node, int]:
    """Return for each node the index of the last node that uses its memory; the output node counts as a user of all outputs."""
    last: dict[Node, int] = {}
    effects = effects_of(gm)
    for index, node in enumerate(gm.graph.nodes):
        used = set(effects[node].reads | effects[node].writes)
        if node.op == "output":
            used = {allocator for source in node.all_input_nodes for allocator in memory.get(source, ())}
        elif node.op == "call_function":
            used |= set(memory.get(node, ()))  # a result that nothing reads is freed at once
        for allocator in used:
            last[allocator] = index
    return last


def _bytes_of(node: Node) -> int:
    return sum(nbytes(tensor) for tensor in tensors_of(node) if tensor.device != torch.device("meta"))
