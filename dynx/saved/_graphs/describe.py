"""Find the tensors that a forward graph saves for backward, and how the backward graph reads them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from operator import getitem

import torch
from torch.fx import Node

from dynx._fx.effects import Memory, memory_of
from dynx._fx.nodes import location_of, module_of, nbytes, placeholders, value_of
from dynx._torch.autograd.partition import Partition
from dynx._torch.shapes.symbol_facts import known_size
from dynx.records.saved import SavedKind, SavedTensor
from dynx.saved._codec import dtype_name
from dynx.saved._graphs.masks import OneBit, one_bit, reads_as_mask
from dynx.saved._graphs.pairs import saved_inputs
from dynx.saved._rules import Candidate

_ATEN = torch.ops.aten
# operators that can enlarge an error of their argument by any factor
_ENLARGING = {
    packet.default for packet in (_ATEN.exp, _ATEN.exp2, _ATEN.expm1, _ATEN.sin, _ATEN.cos, _ATEN.tan, _ATEN.sinh, _ATEN.cosh)
}


@dataclass(frozen=True)
class Saved:
    """A saved tensor: its `node` in the forward graph, and the `input` of the backward graph that receives it."""

    node: Node
    input: Node
    kind: SavedKind
    graphs: Graphs

    @property
    def value(self) -> torch.Tensor:
        return self.node.meta["val"]

    @cached_property
    def readers(self) -> tuple[Node, ...]:
        """The nodes of backward that read the tensor, directly or through views."""
        return tuple(dict.fromkeys(_readers(self.input, self.graphs.backward_memory)))

    @cached_property
    def candidate(self) -> Candidate:
        """The properties of the tensor by which rules select it."""
        tensor, node = self.value, self.node
        is_bool = tensor.dtype is torch.bool
        return Candidate(
            self.kind,
            tensor,
            tensor.numel(),
            node.name,
            module_of(node),
            location_of(node),
            any(self._as_mask) and not is_bool,
            is_bool or self.one_bit is not None,
        )

    @cached_property
    def one_bit(self) -> OneBit | None:
        """How to represent the floating-point tensor by one bit per element; None if one bit is not enough."""
        return one_bit(self.node, self.readers, only_as_mask=all(self._as_mask))

    @cached_property
    def _as_mask(self) -> tuple[bool, ...]:
        return tuple(reads_as_mask(reader, self.input, self.graphs.backward_memory) for reader in self.readers)

    def record(self) -> SavedTensor:
        """Return the record of the tensor as if no rule applied; the caller adds the effect of a rule."""
        tensor, candidate = self.value, self.candidate
        size = nbytes(tensor)
        return SavedTensor(
            self.node.name,
            self.kind,
            _operator(self.node),
            dtype_name(tensor.dtype),
            tuple(map(known_size, tensor.shape)),
            size,
            size,
            location=candidate.location,
            module=candidate.module,
            used_by=tuple(dict.fromkeys(str(reader.target) for reader in self.readers)),
            reads_as_mask=candidate.reads_as_mask,
            enlarged_by=tuple(dict.fromkeys(str(node.target) for node in self._recomputed() if _enlarges(node))),
        )

    def _recomputed(self) -> Iterator[Node]:
        """Yield backward nodes that recompute values from this saved tensor: the partitioner's copies of forward nodes."""
        waiting, found = list(self.readers), set[Node]()
        while waiting:
            node = waiting.pop()
            if node not in found and node.name in self.graphs.forward_names:
                found.add(node)
                yield node
                waiting += [user for user in node.users if user.op == "call_function"]


class Graphs:
    """The forward and backward graph of a compilation, and the nodes that allocated the memory of each node's result."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.forward_memory, self.backward_memory = memory_of(partition.forward), memory_of(partition.backward)
        self.forward_names = {node.name for node in partition.forward.graph.nodes if node.op == "call_function"}

    def saved(self) -> list[Saved]:
        """Return the distinct saved tensors, in the order of the forward graph's outputs."""
        positions = {node: index for index, node in enumerate(placeholders(self.partition.forward))}
        inputs = {source: slot for slot, source in saved_inputs(self.partition).items()}
        outputs = self.partition.forward.graph.output_node().args[0][self.partition.user_outputs :]
        return [
            Saved(node, inputs[node], self._kind(node, positions), self)
            for node in dict.fromkeys(outputs)
            if isinstance(node, Node) and isinstance(value_of(node), torch.Tensor) and node in inputs
        ]

    def _kind(self, node: Node, positions: dict[Node, int]) -> SavedKind:
        kinds = {self._kind_of_allocator(allocator, positions) for allocator in self.forward_memory[node]}
        kind: SavedKind = kinds.pop() if len(kinds) == 1 else "activation"
        return "output" if kind == "activation" and _computed_as(node, self.forward_memory) in self._returned else kind

    @cached_property
    def _returned(self) -> set[Node]:
        """The nodes that compute the tensors that the caller receives; for a view, the node that computes its base."""
        outputs = self.partition.forward.graph.output_node().args[0]
        returned = outputs[self.partition.copied_outputs : self.partition.user_outputs]
        return {_computed_as(node, self.forward_memory) for node in returned if isinstance(node, Node)}

    def _kind_of_allocator(self, node: Node, positions: dict[Node, int]) -> SavedKind:
        if node.op == "get_attr":
            return "constant"
        if node.op != "placeholder":
            return "activation"
        index, partition = positions[node], self.partition
        if index not in partition.static:
            return "input"
        return "param" if index in partition.trainable else "buffer"


def _computed_as(node: Node, memory: dict[Node, Memory]) -> Node:
    """Return the node that computed the base of a view (it may be a `getitem`); if `node` is no view, return `node`."""
    result = node
    while True:
        source = next((source for source in node.all_input_nodes if memory[source] & memory[node]), None)
        result = node if isinstance(value_of(node), torch.Tensor) else result
        if source is None:
            return result
        node = source


def _operator(node: Node) -> str:
    """Return the name of the operator that computes a node (for `getitem`, the indexed operator); empty for a graph input."""
    while node.target is getitem and isinstance(node.args[0], Node):
        node = node.args[0]
    return str(node.target) if node.op == "call_function" else ""


def _readers(source: Node, memory: dict[Node, Memory]) -> Iterator[Node]:
    """Yield the nodes that read `source` or a view of it; creating a view does not count as reading."""
    for user in source.users:
        if user.op == "call_function" and memory[user] & memory[source]:
            yield from _readers(user, memory)
        elif user.op == "call_function":
            yield user


def _enlarges(node: Node) -> bool:
    """Return whether an operator can enlarge the error of its argument: `exp` can, but not in `1 / (1 + exp(-x))`."""
    if node.target not in _ENLARGING:
        return False
    is_sigmoid = bool(node.users) and all(user.target is _ATEN.add.Tensor and 1 in user.args for user in node.users)
    return not is_sigmoid
