"""Let a graph save tensors instead of views of them, so that each is packed once."""

from __future__ import annotations

from torch.fx import Node

from dynx._fx.effects import Memory
from dynx._fx.nodes import value_of
from dynx._torch.autograd.partition import Partition
from dynx._torch.ops.schemas import schema_of
from dynx._torch.shapes.symbol_facts import known_size
from dynx.saved._graphs.describe import Graphs
from dynx.saved._graphs.edit import Edit


def save_bases(partition: Partition) -> None:
    """Replace each saved view of an activation by the activation, from which backward makes the view.

    As after `relu`, whose output is saved as a mask, and again transposed by a matmul that needs its values. A view of a part
    of an activation, such as a slice, stays as it is.
    """
    graphs, edit = Graphs(partition), Edit(partition)
    has_changed = False
    for saved in graphs.saved():
        views = _views_to(saved.node, graphs.forward_memory)
        if not views or not saved.input.users:
            continue
        users = list(saved.input.users)
        reading = set(users)
        env = {views[0].all_input_nodes[0]: edit.save(views[0].all_input_nodes[0], saved.input)}
        first = next(node for node in partition.backward.graph.nodes if node in reading)
        edit.copy_to_backward(views, env, first)
        edit.replace_uses(saved.input, users, env[saved.node])
        has_changed = True
    if has_changed:
        edit.finish()


def _views_to(node: Node, memory: dict[Node, Memory]) -> list[Node]:
    """Return the operators that make a view from an activation with as many elements, in their order."""
    views: list[Node] = []
    while _is_view(node, memory) and _elements(node) == _elements(node.all_input_nodes[0]):
        views.insert(0, node)
        node = node.all_input_nodes[0]
    return views if node.op == "call_function" else []  # parameters and inputs are in memory anyway


def _is_view(node: Node, memory: dict[Node, Memory]) -> bool:
    """Return whether a node is a view of its only argument that is no constant."""
    schema = schema_of(node.target) if node.op == "call_function" else None
    sources = node.all_input_nodes
    return schema is not None and not schema.is_mutable and len(sources) == 1 and bool(memory[node] & memory[sources[0]])


def _elements(node: Node) -> int:
    value = value_of(node)
    return known_size(value.numel()) if hasattr(value, "numel") else -1
