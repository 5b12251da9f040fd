"""Insert traced pack and unpack functions into the forward and backward graph, and save the packed values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, count
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from dynx._fx.nodes import placeholders, value_of
from dynx._torch.autograd.partition import Partition
from dynx.saved._graphs.pairs import saved_inputs

_KEPT_META = ("stack_trace", "nn_module_stack")  # copied from the packed tensor to new nodes, for the user's lines


class Edit:
    """An edit of the forward and backward graph; `finish` makes the outputs of forward match the inputs of backward.

    `slots` maps each backward input that receives a saved value to the forward node that computes the value.
    """

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.forward, self.backward = partition.forward.graph, partition.backward.graph
        self._first_input = placeholders(partition.backward)[0]
        self._outputs: list[Any] = list(self.forward.output_node().args[0])
        self.slots: dict[Node, Node] = saved_inputs(partition)
        self._replaced: set[Node] = set()  # inputs of the backward graph whose uses were replaced
        self._names = {node.name for graph in (self.forward, self.backward) for node in graph.nodes}

    def save(self, node: Node, near: Node) -> Node:
        """Return the backward input that receives a forward node; if there is none, add it (for a tensor: before `near`)."""
        for slot, source in self.slots.items():
            if source is node:
                return slot
        is_tensor = isinstance(value_of(node), torch.Tensor)
        with self.backward.inserting_before(near if is_tensor else self._first_input):  # sizes come first
            slot = self.backward.placeholder(node.name)
        slot.meta = {key: value for key, value in node.meta.items() if key in ("val", "tensor_meta", *_KEPT_META)}
        if near in self.slots and self.slots[near].meta.get("saved_tensor_with_no_vc_check"):
            node.meta["saved_tensor_with_no_vc_check"] = True
        self.slots[slot] = node
        return slot

    def insert_forward(self, gm: GraphModule, source: Node, after: Node, prefix: str) -> list[Any]:
        """Inline the graph `gm`, called on `source`, after node `after`; return the results, named `<prefix>_<index>`."""
        results = set(gm.graph.output_node().all_input_nodes)
        names = {node: f"{prefix}_{index}" for index, node in enumerate(node for node in _body(gm) if node in results)}
        return self._insert(gm, self.partition.forward, (source,), after.next, source, names)

    def insert_backward(self, gm: GraphModule, stored: Sequence[Node], before: Node, source: Node) -> Any:
        """Inline the graph `gm`, called on `stored`, into backward; return the result. New nodes get the line of `source`."""
        return self._insert(gm, self.partition.backward, stored, before, source, {})[0]

    def _insert(
        self, gm: GraphModule, into: GraphModule, inputs: Sequence[Node], before: Node, source: Node, names: Mapping[Node, str]
    ) -> list[Any]:
        """Inline the graph `gm`, called on `inputs`, into `into`; return the results. New nodes get the line of `source`."""
        env = dict(zip(placeholders(gm), inputs, strict=True))
        with into.graph.inserting_before(before):
            for node in _body(gm):
                env[node] = self._copy(node, gm, into, env, source, names.get(node, f"{node.name}_"))
        outputs = torch.utils._pytree.tree_leaves(gm.graph.output_node().args[0])
        return [env[output] if isinstance(output, Node) else output for output in outputs]

    def copy_to_backward(self, nodes: Sequence[Node], env: dict[Node, Node], before: Node) -> None:
        """Copy forward nodes into backward; add the copies to `env`, which maps forward nodes to backward nodes."""
        with self.backward.inserting_before(before):
            for node in nodes:
                env[node] = self._copy(node, self.partition.forward, self.partition.backward, env, node, f"{node.name}_")

    def finish(self) -> None:
        """Remove replaced inputs of backward, order forward's outputs like the remaining inputs, and recompile both graphs."""
        for slot in list(self.slots):
            if not slot.users and isinstance(value_of(slot), torch.Tensor) and slot in self._replaced:
                del self.slots[slot]
                self.backward.erase_node(slot)
        ordered = [node for node in placeholders(self.partition.backward) if node in self.slots]
        saved = [self.slots[node] for node in ordered]
        before = [node for node in self._outputs[self.partition.user_outputs :] if not _is_tensor(node)]
        new_sizes = [node for node in saved if not _is_tensor(node) and node not in before]
        others = [node for node in before if not _is_size(node)], [node for node in before if _is_size(node)]
        outputs = [node for node in saved if _is_tensor(node)] + others[0] + new_sizes + others[1]
        self.forward.output_node().args = ((*self._outputs[: self.partition.user_outputs], *outputs),)
        for gm in (self.partition.forward, self.partition.backward):
            gm.graph.eliminate_dead_code(_is_needed)
            gm.graph.lint()
            gm.recompile()

    def replace_uses(self, slot: Node, users: Sequence[Node], result: Node) -> None:
        """Make `users` in the backward graph read `result` instead of the input `slot`."""
        for user in users:
            user.replace_input_with(slot, result)
        self._replaced.add(slot)

    def _copy(self, node: Node, gm: GraphModule, into: GraphModule, env: dict[Node, Node], source: Node, name: str) -> Node:
        """Copy a node of `gm` to `into`; take arguments from `env`, the user's line from `source`, and an unused name."""
        target = _constant(node, gm, into) if node.op == "get_attr" else node.target
        lookup: Callable[[Node], Any] = env.__getitem__
        args, kwargs = map_arg(node.args, lookup), map_arg(node.kwargs, lookup)
        candidates = chain([name], (f"{name}{number}" for number in count(1)))
        unused = next(candidate for candidate in candidates if candidate not in self._names)
        copied = into.graph.create_node(node.op, target, args, kwargs, unused)
        self._names |= {unused, copied.name}
        copied.meta = {**node.meta, **{key: source.meta[key] for key in _KEPT_META if key in source.meta}}
        return copied


def _constant(node: Node, gm: GraphModule, into: GraphModule) -> str:
    """Copy the constant of a `get_attr` node from the module `gm` to the module `into`; return its attribute name in `into`."""
    value, name = getattr(gm, str(node.target)), f"_dynx{node.target}"
    while hasattr(into, name):
        name += "_"
    if isinstance(value, torch.Tensor):
        into.register_buffer(name, value, persistent=False)
    else:
        setattr(into, name, value)
    return name


def _body(gm: GraphModule) -> Iterator[Node]:
    return (node for node in gm.graph.nodes if node.op not in ("placeholder", "output"))


def _is_tensor(node: Any) -> bool:
    return isinstance(node, Node) and isinstance(value_of(node), torch.Tensor)


def _is_size(node: Any) -> bool:
    return isinstance(node, Node) and isinstance(value_of(node), (torch.SymInt, torch.SymFloat, torch.SymBool))


def _is_needed(node: Node) -> bool:
    """Return whether dead code elimination must keep a node: inputs, outputs, and operators with side effects."""
    return node.op != "call_function" or node.is_impure()
