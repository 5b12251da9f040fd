"""Dividing a graph into graphs that run one after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.fx import Graph, GraphModule, Node

from dynx._torch.ops.schemas import schema_of
from dynx.cudagraphs._graph.fx import placeholders, tensors_of, value_of


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a graph as a graph of its own."""

    gm: GraphModule
    inputs: tuple[Node, ...]  # of the whole graph, also those of other pieces
    results: tuple[Node, ...]  # the first `user_outputs` are outputs of the whole graph
    user_outputs: int
    regenerated: tuple[int, ...]  # results of which the layout is read only
    launches: int  # nodes that do work on the device


def pieces_of(
    gm: GraphModule, parts: Sequence[Sequence[Node]], user_outputs: int, regenerated: Sequence[int] = ()
) -> list[Piece]:
    """Make a graph of each part. Outputs of the whole graph behind the first `user_outputs` count as internal."""
    asked = list(gm.graph.output_node().args[0])
    others = {each for index, each in enumerate(asked) if isinstance(each, Node) and index not in regenerated}
    layouts = {asked[index] for index in regenerated} - others
    for_user = {each for each in asked[:user_outputs] if isinstance(each, Node)}
    internal = {each for each in asked[user_outputs:] if isinstance(each, Node)}
    numbers = [each for each in placeholders(gm) if not isinstance(value_of(each), torch.Tensor)]  # sizes follow from them
    return [_piece(gm, part, for_user, internal, layouts, numbers) for part in parts]


def _piece(
    gm: GraphModule,
    part: Sequence[Node],
    for_user: set[Node],
    internal: set[Node],
    layouts: set[Node],
    numbers: Sequence[Node],
) -> Piece:
    graph, copies, here = Graph(), dict[Node, Node](), set(part)
    outside = [each for node in part for each in node.all_input_nodes if each not in here]
    inputs = [each for each in dict.fromkeys([*numbers, *outside]) if each.op != "get_attr"]
    for each in inputs:
        copies[each] = graph.placeholder(each.name)
        copies[each].meta = dict(each.meta)
    for each in dict.fromkeys(outside):
        if each.op == "get_attr":
            copies[each] = graph.node_copy(each)
    for node in part:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    handed = [each for each in part if each in for_user]
    kept = [each for each in part if each in internal or any(user not in here and user.op != "output" for user in each.users)]
    kept.sort(key=lambda each: each not in internal)  # what the backward pass reads lives longest: it tells when all is free
    graph.output(tuple(copies[each] for each in (*handed, *kept)))
    regenerated = tuple(index for index, each in enumerate(handed) if each in layouts)
    return Piece(GraphModule(gm, graph), tuple(inputs), (*handed, *kept), len(handed), regenerated, sum(map(_launches, part)))


def _launches(node: Node) -> bool:
    """Tell whether a node does work on the device: it gives a tensor that is no view."""
    schema = schema_of(node.target)
    returns = () if schema is None else schema.returns
    return any(True for _ in tensors_of(node)) and not any(each.alias_info and not each.alias_info.is_write for each in returns)
