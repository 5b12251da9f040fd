"""Split a graph into smaller graphs that run one after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.fx import Graph, GraphModule, Node

from dynx._fx.nodes import placeholders, tensors_of, value_of
from dynx._torch.ops.schemas import schema_of


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a graph as a GraphModule; its inputs and results are given as nodes of the whole graph."""

    gm: GraphModule
    inputs: tuple[Node, ...]  # nodes of the whole graph, also of other pieces
    results: tuple[Node, ...]  # the first `user_outputs` are outputs of the whole graph
    user_outputs: int
    regenerated: tuple[int, ...]  # indices of results that are read only for their layout
    launches: int  # nodes that launch kernels


def split(gm: GraphModule, parts: Sequence[Sequence[Node]], user_outputs: int, regenerated: Sequence[int] = ()) -> list[Piece]:
    """Build a GraphModule from each list of nodes in `parts`, and return them as `Piece`s.

    The first `user_outputs` outputs of the whole graph are returned to the user; the others are saved for the backward pass.
    `regenerated` are the indices of outputs that AOTAutograd replaces by views of other tensors: it reads only their layout.
    """
    outputs = list(gm.graph.output_node().args[0])
    read = {node for index, node in enumerate(outputs) if isinstance(node, Node) and index not in regenerated}
    only_layout = {outputs[index] for index in regenerated} - read
    for_user = {node for node in outputs[:user_outputs] if isinstance(node, Node)}
    internal = {node for node in outputs[user_outputs:] if isinstance(node, Node)}
    # sizes may depend on these
    numbers = [node for node in placeholders(gm) if not isinstance(value_of(node), (torch.Tensor, torch.Generator))]
    return [_piece(gm, part, for_user, internal, only_layout, numbers) for part in parts]


def _piece(
    gm: GraphModule, part: Sequence[Node], for_user: set[Node], internal: set[Node], only_layout: set[Node], numbers: list[Node]
) -> Piece:
    graph, copies, inside = Graph(), dict[Node, Node](), set(part)
    outside = [source for node in part for source in node.all_input_nodes if source not in inside]
    inputs = [node for node in dict.fromkeys([*numbers, *outside]) if node.op != "get_attr"]
    for node in inputs:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta = dict(node.meta)
    for node in dict.fromkeys(outside):
        if node.op == "get_attr":
            copies[node] = graph.node_copy(node)
    for node in part:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    returned = [node for node in part if node in for_user]
    kept = [node for node in part if node in internal or any(user not in inside and user.op != "output" for user in node.users)]
    kept.sort(key=lambda node: node not in internal)  # saved tensors first: `Results.token` watches the first
    graph.output(tuple(copies[node] for node in (*returned, *kept)))
    regenerated = tuple(index for index, node in enumerate(returned) if node in only_layout)
    results = (*returned, *kept)
    return Piece(GraphModule(gm, graph), tuple(inputs), results, len(returned), regenerated, sum(map(_launches, part)))


def _launches(node: Node) -> bool:
    """Return whether a node is counted as a kernel launch: whether it returns a tensor that is not a view."""
    schema = schema_of(node.target)
    returns = () if schema is None else schema.returns
    is_view = any(value.alias_info and not value.alias_info.is_write for value in returns)
    return any(True for _ in tensors_of(node)) and not is_view
