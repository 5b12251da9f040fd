"""Which memory the nodes of a graph read and write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.fx import GraphModule, Node

from dynx._torch.ops.schemas import effects_on, schema_of
from dynx.cudagraphs._graph.fx import placeholders

Memory = frozenset[Node]  # by the nodes that made it


def mutated_inputs(gm: GraphModule) -> frozenset[int]:
    """Give the indices of the inputs that a graph writes to: directly, through views of them, or in a list of arguments."""
    written = {memory for _, writes in effects_of(gm).values() for memory in writes}
    return frozenset(index for index, node in enumerate(placeholders(gm)) if node in written)


def effects_of(gm: GraphModule) -> dict[Node, tuple[Memory, Memory]]:
    """Give the memory that each node reads, and that it writes.

    Follows the schemas of the operators; a higher-order operator without one counts as writing to all that it is given.
    """
    made_by: dict[Node, Memory] = {}  # the memory that a node's result lies in
    effects: dict[Node, tuple[Memory, Memory]] = {}
    for node in gm.graph.nodes:
        reads, writes, shares = set[Node](), set[Node](), set[Node]()
        for argument, is_written, is_shared in _arguments(node) if node.op == "call_function" else ():
            memory = {each for found in _nodes(argument) for each in made_by.get(found, ())}
            reads |= memory
            writes |= memory if is_written else set()
            shares |= memory if is_shared else set()
        made_by[node] = frozenset(shares or {node})
        effects[node] = frozenset(reads), frozenset(writes)
    return effects


def _arguments(node: Node) -> Iterator[tuple[Any, bool, bool]]:
    """Give each argument, whether it is written to, and whether the result may be a view of it."""
    schema = schema_of(node.target)
    if schema is None:
        family = type(node.target).__module__
        is_functional = family == "torch._higher_order_ops.auto_functionalize"  # gives copies of what it would change
        unknown = family.startswith("torch._higher_order_ops") and not is_functional
        for argument in (*node.args, *node.kwargs.values()):
            yield argument, unknown, not is_functional  # such as operator.getitem
        return
    yield from effects_on(schema, node.args, node.kwargs)


def _nodes(argument: Any) -> Iterator[Node]:
    if isinstance(argument, Node):
        yield argument
    elif isinstance(argument, (tuple, list)):
        for each in argument:
            yield from _nodes(each)
