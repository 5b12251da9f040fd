"""Make a graph save base tensors instead of views of them, so that each base is packed once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import getitem

from torch.fx import Node

from dynx._fx.effects import Memory
from dynx._fx.nodes import nbytes, value_of
from dynx._torch.autograd.partition import Partition
from dynx._torch.ops.schemas import schema_of
from dynx._torch.shapes.symbol_facts import known_size
from dynx.saved._graphs.describe import Graphs, Saved
from dynx.saved._graphs.edit import Edit


def save_bases(partition: Partition) -> None:
    """Save an activation instead of saved views of it, and make backward create the views from this base tensor.

    For example, the output of `relu` may be saved as a mask and, transposed, for a matmul; query, key and value may be parts of
    the result of one matmul. If the views together have fewer bytes than their base, such as one slice, the base is not saved.
    """
    graphs, edit = Graphs(partition), Edit(partition)
    has_changed = False
    for saved, base, views in _with_bases(graphs):
        if not views or base.op != "call_function":  # parameters and inputs are in memory anyway
            continue
        users = list(saved.input.users)
        reading = set(users)
        env = {base: edit.save(base, saved.input)}
        first = next(node for node in partition.backward.graph.nodes if node in reading)
        edit.copy_to_backward(views, env, first)
        edit.replace_uses(saved.input, users, env[saved.node])
        has_changed = True
    if has_changed:
        edit.finish()


def _with_bases(graphs: Graphs) -> Iterator[tuple[Saved, Node, Sequence[Node]]]:
    """Yield (saved tensor, node to save instead, views from this node to the tensor) for each tensor that backward reads."""
    chains = {saved: _views_to(saved.node, graphs.forward_memory) for saved in graphs.saved() if saved.input.users}
    parts = {saved: _last_part(chain) for saved, chain in chains.items()}
    saved_of: dict[Node, set[Node]] = {}
    for saved, chain in chains.items():
        saved_of.setdefault(chain[0], set()).add(chain[parts[saved]])
    for saved, chain in chains.items():
        whole = chain[0]
        is_whole = sum(nbytes(value_of(part)) for part in saved_of[whole]) >= nbytes(value_of(whole))
        start = 0 if is_whole else parts[saved]
        yield saved, chain[start], chain[start + 1 :]


def _views_to(node: Node, memory: dict[Node, Memory]) -> list[Node]:
    """Return the base of a view, followed by the operators that create the view from the base, in order."""
    chain = [node]
    while _is_view(chain[0], memory):
        chain.insert(0, chain[0].all_input_nodes[0])
    return chain


def _last_part(chain: Sequence[Node]) -> int:
    """Return the index in `chain` (a base, then views) of the first node whose elements all later views keep."""
    last = len(chain) - 1
    while last and _elements(chain[last - 1]) == _elements(chain[-1]):
        last -= 1
    return last


def _is_view(node: Node, memory: dict[Node, Memory]) -> bool:
    """Return whether an operator returns a view, or several views, of its only tensor argument."""
    if node.target is getitem:
        return _is_view(node.all_input_nodes[0], memory)
    schema = schema_of(node.target) if node.op == "call_function" else None
    sources = node.all_input_nodes
    return schema is not None and not schema.is_mutable and len(sources) == 1 and bool(memory[node] & memory[sources[0]])


def _elements(node: Node) -> int:
    value = value_of(node)
    return known_size(value.numel()) if hasattr(value, "numel") else -1
