"""Which inputs a graph changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.fx import GraphModule, Node

from dynx.cudagraphs._graph import placeholders


def mutated_inputs(gm: GraphModule) -> frozenset[int]:
    """Give the indices of the inputs that a graph writes to: directly, through views of them, or in a list of arguments.

    Follows the schemas of the operators; a higher-order operator without one counts as writing to all that it is given.
    """
    roots: dict[Node, frozenset[int]] = {node: frozenset([index]) for index, node in enumerate(placeholders(gm))}
    found: set[int] = set()
    for node in gm.graph.nodes:
        if node.op != "call_function":
            continue
        reached: set[int] = set()
        for argument, writes, aliases in _arguments(node):
            inputs = {index for each in _nodes(argument) for index in roots.get(each, ())}
            if writes:
                found |= inputs
            if aliases:
                reached |= inputs
        roots[node] = frozenset(reached)
    return frozenset(found)


def _arguments(node: Node) -> Iterator[tuple[Any, bool, bool]]:
    """Give each argument, whether it is written to, and whether the result may be a view of it."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        unknown = type(node.target).__module__.startswith("torch._higher_order_ops")
        for argument in (*node.args, *node.kwargs.values()):
            yield argument, unknown, True  # such as operator.getitem
        return
    by_name = {each.name: each for each in schema.arguments}
    given = [*zip(schema.arguments, node.args, strict=False), *((by_name[name], each) for name, each in node.kwargs.items())]
    for parameter, argument in given:
        alias = parameter.alias_info
        yield argument, bool(alias is not None and alias.is_write), alias is not None


def _nodes(argument: Any) -> Iterator[Node]:
    if isinstance(argument, Node):
        yield argument
    elif isinstance(argument, (tuple, list)):
        for each in argument:
            yield from _nodes(each)
