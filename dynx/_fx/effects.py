"""Find which memory each node of an FX graph reads and writes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from torch.fx import GraphModule, Node

from dynx._fx.nodes import placeholders
from dynx._torch.ops.schemas import effects_on, schema_of

Memory = frozenset[Node]  # the nodes that allocated it


class NodeEffects(NamedTuple):
    """The memory that a node reads and writes."""

    reads: Memory
    writes: Memory


def mutated_inputs(gm: GraphModule) -> frozenset[int]:
    """Return the indices of the inputs that a graph mutates: directly, through a view, or as an item of a list argument."""
    written = {memory for effects in effects_of(gm).values() for memory in effects.writes}
    return frozenset(index for index, node in enumerate(placeholders(gm)) if node in written)


def effects_of(gm: GraphModule) -> dict[Node, NodeEffects]:
    """Return the memory that each node reads and writes, according to the schemas of the operators.

    A higher-order operator without a schema, other than `auto_functionalized`, is assumed to write to all of its arguments.
    """
    return _analyze(gm)[1]


def memory_of(gm: GraphModule) -> dict[Node, Memory]:
    """Return for each node which nodes allocated the memory of its result: the node itself, unless its result is a view."""
    return _analyze(gm)[0]


def _analyze(gm: GraphModule) -> tuple[dict[Node, Memory], dict[Node, NodeEffects]]:
    memory_of: dict[Node, Memory] = {}  # of a node's result
    effects: dict[Node, NodeEffects] = {}
    for node in gm.graph.nodes:
        reads, writes, shares = set[Node](), set[Node](), set[Node]()
        for argument, is_written, is_shared in _arguments(node) if node.op == "call_function" else ():
            memory = {allocator for source in _nodes(argument) for allocator in memory_of.get(source, ())}
            reads |= memory
            writes |= memory if is_written else set()
            shares |= memory if is_shared else set()
        memory_of[node] = frozenset(shares or {node})
        effects[node] = NodeEffects(frozenset(reads), frozenset(writes))
    return memory_of, effects


def _arguments(node: Node) -> Iterator[tuple[Any, bool, bool]]:
    """Yield each argument of a node, whether the node writes to it, and whether the node's result may be a view of it."""
    schema = schema_of(node.target)
    if schema is None:
        family = type(node.target).__module__
        is_functional = family == "torch._higher_order_ops.auto_functionalize"  # returns copies of what it would mutate
        is_unknown = family.startswith("torch._higher_order_ops") and not is_functional
        for argument in (*node.args, *node.kwargs.values()):
            yield argument, is_unknown, not is_functional  # such as operator.getitem
        return
    yield from effects_on(schema, node.args, node.kwargs)


def _nodes(argument: Any) -> Iterator[Node]:
    if isinstance(argument, Node):
        yield argument
    elif isinstance(argument, (tuple, list)):
        for element in argument:
            yield from _nodes(element)
