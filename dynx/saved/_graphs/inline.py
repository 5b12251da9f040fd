"""Choose a rule for each saved tensor, and edit both graphs accordingly."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch.fx import Node

from dynx._fx.effects import effects_of
from dynx._fx.nodes import nbytes, placeholders, value_of
from dynx._torch.autograd.partition import Partition
from dynx._torch.shapes.symbol_facts import holds, known_size
from dynx.records.saved import SavedTensor
from dynx.saved._graphs.describe import Graphs, Saved
from dynx.saved._graphs.edit import Edit
from dynx.saved._graphs.recompute import Chain, chain_of
from dynx.saved._graphs.trace_codec import Subject, TracedCodec, check_deterministic, check_unpacked, trace_codec
from dynx.saved._graphs.views import save_bases
from dynx.saved._rules import Rule
from dynx.saved.codecs._recompute import NAME as RECOMPUTE

Schedule = Literal["auto", "graph", "none"]


@dataclass(frozen=True)
class Choice:
    """The rule that applies to a saved tensor, or None; `why` says why no rule applies."""

    saved: Saved
    rule: Rule | None
    why: str = ""
    chain: Chain | None = None  # with the codec `recompute`


def inline(partition: Partition, rules: Sequence[Rule], *, validate: bool, schedule: Schedule) -> list[SavedTensor]:
    """Edit the graphs of a compilation so that rules pack saved tensors; return the records of all saved tensors.

    Each tensor is packed by the first rule that applies to it. `schedule` is the option of `saved.hooks`. With `validate`,
    raises BadCodec for a codec that draws random numbers or does not restore the shape, dtype and device.
    """
    save_bases(partition)
    graphs = Graphs(partition)
    is_ordered = schedule == "graph" or (schedule == "auto" and not partition.is_inductor)
    writer = _Writer(graphs, validate=validate, is_ordered=is_ordered)
    inputs = placeholders(partition.forward)
    choices = _choose(graphs.saved(), rules, {inputs[index] for index in partition.mutated})
    records = {choice.saved: choice.saved.record() for choice in choices}
    for choice in choices:
        if choice.chain is not None:
            records[choice.saved] = writer.recompute(choice, choice.chain, records[choice.saved])
    for choice in choices:
        if choice.rule is not None and choice.chain is None:
            records[choice.saved] = writer.pack(choice, choice.rule, records[choice.saved])
        elif choice.rule is None:
            records[choice.saved] = replace(records[choice.saved], why=choice.why)
    writer.edit.finish()
    return list(records.values())


def _choose(saved: Sequence[Saved], rules: Sequence[Rule], mutated: Collection[Node]) -> list[Choice]:
    """Choose a rule or none for each tensor. `recompute` needs stored tensors or unmutated graph inputs as sources."""
    refused: dict[Saved, str] = {}
    while True:
        choices = {one: _first(one, rules, refused) for one in saved}
        recomputed = [one for one, choice in choices.items() if choice.rule is not None and choice.rule.codec.name == RECOMPUTE]
        kept = {one.node for one in saved} - {one.node for one in recomputed}
        for one in recomputed:
            chain = chain_of(one.node, kept, mutated)
            if isinstance(chain, str):
                refused[one] = chain
                break
            choices[one] = replace(choices[one], chain=chain)
        else:
            return list(choices.values())


def _first(saved: Saved, rules: Sequence[Rule], refused: dict[Saved, str]) -> Choice:
    """Choose the first rule that applies to a tensor, or none; `refused` says why some tensors cannot be recomputed."""
    candidate, reasons = saved.candidate, []
    common = _why_never(saved)
    for rule in rules:
        reason = common or rule.why_not(candidate)
        if not reason and rule.codec.name == RECOMPUTE:
            is_input = saved.node.op == "placeholder"
            reason = "it is an input of the graph" if is_input else refused.get(saved, "")
        if not reason:
            return Choice(saved, rule)
        reasons.append(reason)
    return Choice(saved, None, "; ".join(dict.fromkeys(reasons)) or "no rules")


def _why_never(saved: Saved) -> str:
    if not saved.readers and not saved.input.users:
        return "backward does not read it"
    return "" if order_of(saved.value) is not None else "its elements overlap in memory, as after expand()"


class _Writer:
    """Edits the graphs: packs and unpacks, or recomputes, one saved tensor at a time."""

    def __init__(self, graphs: Graphs, *, validate: bool, is_ordered: bool) -> None:
        self._graphs, self._validate, self._is_ordered = graphs, validate, is_ordered
        self._partition = graphs.partition
        self.edit = Edit(self._partition)
        self._last_reads = _last_reads(self._partition)
        self._order = {node: index for index, node in enumerate(self._partition.forward.graph.nodes)}
        self._last_forward_input = placeholders(self._partition.forward)[-1]
        self._forward_end = self._partition.forward.graph.output_node().prev

    def recompute(self, choice: Choice, chain: Chain, record: SavedTensor) -> SavedTensor:
        """Make backward recompute the saved tensor of `choice` with the nodes of `chain`; return the updated `record`."""
        slot = choice.saved.input
        users = list(slot.users)
        env = {source: self.edit.save(source, slot) for source in chain.sources}
        self.edit.copy_to_backward(chain.nodes, env, self._first_use(users, is_ordered=self._is_ordered))
        self.edit.replace_uses(slot, users, env[choice.saved.node])
        names = tuple(source.name for source in chain.sources)
        return replace(record, saved_bytes=0, codec=RECOMPUTE, rule=str(choice.rule), computed_from=names)

    def pack(self, choice: Choice, rule: Rule, record: SavedTensor) -> SavedTensor:
        """Make forward pack the saved tensor of `choice` by `rule`, and backward unpack it; return the updated `record`."""
        saved, codec = choice.saved, rule.codec
        value, slot, subject = saved.value, saved.input, Subject(saved.node.name, codec.name, record.location)
        order, mask = order_of(value), saved.one_bit if codec.zero_mask_only else None
        assert order is not None

        def pack(tensor: torch.Tensor) -> Any:
            return codec.pack(tensor if mask is None else mask.bits(tensor))

        def unpack(packed: Any) -> Any:
            unpacked = codec.unpack(packed) if mask is None else mask.tensor(codec.unpack(packed), value.dtype)
            if self._validate:
                check_unpacked(unpacked, value, subject)
            return _in_order(unpacked, order) if _strides(unpacked) != _strides(value) else unpacked

        traced = trace_codec(self._partition, value, pack, unpack, subject)
        if self._validate:
            check_deterministic(traced, subject)
        stored = [leaf for leaf in _distinct(traced.outputs) if leaf.device == value.device]
        size = sum(map(nbytes, stored))
        if not codec.is_exact and holds(sum(map(_bytes, stored)) > _bytes(value)):
            return replace(record, why=f"{codec.name} would store {size} bytes for {record.bytes}")
        is_ordered = self._is_ordered or _has_own_operators(traced)
        users = list(slot.users)
        after = self._pack_after(saved.node, is_ordered=is_ordered)
        results = self.edit.insert_forward(traced.pack, saved.node, after, f"{saved.node.name}_packed")
        slots = [self.edit.save(result, slot) for result in results if isinstance(result, Node)]
        unpacked = self.edit.insert_backward(traced.unpack, slots, self._first_use(users, is_ordered=is_ordered), saved.node)
        if unpacked is not slot:
            self.edit.replace_uses(slot, users, unpacked)
        return replace(
            record,
            saved_bytes=size,
            codec=codec.name,
            rule=str(rule),
            is_exact=codec.is_exact,
            keeps_mask=codec.keeps_mask or codec.is_exact,
        )

    def _pack_after(self, node: Node, *, is_ordered: bool) -> Node:
        """Return the forward node after which to pack a tensor: its last use if `is_ordered`, else the last node."""
        if not is_ordered:
            return self._forward_end
        memory = self._graphs.forward_memory[node]
        reads = [self._last_reads[allocator] for allocator in memory if allocator in self._last_reads]
        return max((self._last_forward_input, node, *reads), key=self._order.__getitem__)

    def _first_use(self, users: Sequence[Node], *, is_ordered: bool) -> Node:
        """Return the backward node before which to unpack a tensor: its first use if `is_ordered`, else the first operator."""
        if not is_ordered or not users:
            return placeholders(self._partition.backward)[-1].next  # before nodes that recompute from it
        reading = set(users)
        return next(node for node in self._partition.backward.graph.nodes if node in reading)


def _has_own_operators(traced: TracedCodec) -> bool:
    """Return whether a codec calls custom operators, which inductor does not compile and therefore does not reorder."""
    nodes = (node for node in traced.pack.graph.nodes if node.op == "call_function")
    return any(getattr(node.target, "namespace", "aten") not in ("aten", "prims") for node in nodes)


def _bytes(tensor: torch.Tensor) -> Any:
    """Return the bytes of a tensor's elements, symbolic for dynamic sizes."""
    return tensor.numel() * tensor.element_size()


def _distinct(results: Sequence[Any]) -> list[torch.Tensor]:
    values = [value_of(node) for node in dict.fromkeys(result for result in results if isinstance(result, Node))]
    return [value for value in values if isinstance(value, torch.Tensor)]


def _last_reads(partition: Partition) -> dict[Node, Node]:
    """Return, for each node that allocates memory, the last node that reads this memory before it is written in place."""
    last: dict[Node, Node] = {}
    written: set[Node] = set()
    for node, (reads, writes) in effects_of(partition.forward).items():
        written |= writes
        last.update((allocator, node) for allocator in reads - written)
    return last


def order_of(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """Return the dims of a tensor from the largest stride to the smallest; None if its elements overlap in memory."""
    sizes, strides = [known_size(size) for size in tensor.shape], [known_size(stride) for stride in tensor.stride()]
    order = tuple(sorted(range(tensor.dim()), key=lambda dim: (-strides[dim], -sizes[dim], dim)))
    extent = 0
    for dim in reversed(order):
        if sizes[dim] > 1:
            if strides[dim] <= extent:
                return None
            extent += strides[dim] * (sizes[dim] - 1)
    return order


def _in_order(tensor: torch.Tensor, order: tuple[int, ...]) -> torch.Tensor:
    """Return a copy of the tensor whose strides decrease in the given order of dims."""
    back = [order.index(dim) for dim in range(len(order))]
    return tensor.permute(order).contiguous().permute(back)


def _strides(tensor: torch.Tensor) -> list[int]:
    return [known_size(stride) for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if known_size(size) != 1]
