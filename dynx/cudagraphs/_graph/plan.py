"""Plan how a graph is captured: which inputs are copied or read in place, and which nodes cannot be captured."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import torch
from torch.fx import GraphModule, Node

from dynx._fx.effects import mutated_inputs
from dynx._fx.nodes import location_of, placeholders, tensors_of, value_of
from dynx._torch.autograd.aot import count_saved, graph_facts
from dynx._torch.tracing.shape_facts import is_unbacked, symbols_of
from dynx._trace.guards.requests import short_source
from dynx.advice import spoken
from dynx.records.cudagraphs import GraphInput, GraphPlan, InputClass, Part, Skip

_UNSAFE = {  # by tags of operators; the text follows the operator's name
    torch.Tag.cudagraph_unsafe: Skip("cannot be captured", None, "call it outside of the compiled function if possible"),
    torch.Tag.data_dependent_output: Skip(
        "reads a value of a tensor", None, "keep the value in a tensor: torch.where, a mask, a tensor argument", "value"
    ),
}
_FIX_SIZE = "make the size fixed: torch.where instead of a mask, torch.nonzero_static, padding"


def plan_of(
    gm: GraphModule, part: Part, device: torch.device, sources: Sequence[str], saved_elsewhere: Collection[str]
) -> tuple[GraphPlan, dict[Node, Skip]]:
    """Plan how a graph is captured; return the plan, and the nodes that cannot be captured, each with the reason.

    `sources` are the Dynamo sources of the graph's inputs, such as "L['x']", if known. `saved_elsewhere` are the names of
    tensors that were saved for the backward pass, but whose memory belongs to no recording (captured graph).
    """
    facts = graph_facts()
    saved = count_saved(gm) if part == "backward" else 0
    mutated = mutated_inputs(gm)
    nodes, outputs = placeholders(gm), list(gm.graph.output_node().args[0])
    user_outputs = facts.user_outputs if part == "forward" else len(outputs)
    known_symbols = frozenset[Any]().union(*(symbols_of(value_of(node)) for node in nodes))
    used_symbols = frozenset[Any]().union(*map(_symbols, gm.graph.nodes))
    has_sources = len(sources) == len(nodes) and part != "backward"
    inputs = []
    for index, node in enumerate(nodes):
        name = spoken(short_source(sources[index])) if has_sources and sources[index] else node.name
        kind, why = _class_of(value_of(node), part, is_static=index in facts.static, is_saved=index < saved)
        if kind == "managed" and node.name in saved_elsewhere:
            kind, why = "dynamic", "saved by a piece that is not captured"
        is_size = bool(symbols_of(value_of(node)) & used_symbols)
        if kind in ("dynamic", "scalar") and not is_size and _is_untouched(node, outputs[user_outputs:]):
            kind, why = "untouched", "no operator reads it"
        is_fixed = not _symbols(node)
        nbytes = sum(tensor.element_size() * prod(tensor.shape) for tensor in tensors_of(node)) if is_fixed else 0
        inputs.append(
            GraphInput(
                name,
                kind,
                why,
                index in mutated,
                is_fixed=is_fixed,
                has_known_layout=_symbols(node) <= known_symbols,
                nbytes=nbytes,
                location=location_of(node),
                node=node.name,
            )
        )
    unsafe, followers = _unsafe_nodes(gm, inputs, device), _users_of_unbacked_sizes(gm)
    passed = tuple(
        (position, nodes.index(node))
        for position, node in enumerate(outputs)
        if node in nodes and inputs[nodes.index(node)].kind == "untouched"
    )
    skips = tuple(unsafe.values()) or tuple(followers.values())[:1]  # an unbacked size may come from the forward graph
    regenerated = () if part == "backward" else tuple(sorted(facts.regenerated))
    plan = GraphPlan(part, tuple(inputs), user_outputs, skips, is_pure=not mutated, passed=passed, regenerated=regenerated)
    return plan, {**unsafe, **{node: skip for node, skip in followers.items() if node not in unsafe}}


def with_changed_inputs(plan: GraphPlan, indices: Collection[int], **changes: Any) -> GraphPlan:
    """Return a copy of the plan in which the inputs at `indices` have the field values `changes`."""
    inputs = (replace(spec, **changes) if index in indices else spec for index, spec in enumerate(plan.inputs))
    return replace(plan, inputs=tuple(inputs))


def _class_of(value: object, part: Part, *, is_static: bool, is_saved: bool) -> tuple[InputClass, str]:
    """Classify the input `value` of a graph as "static", "dynamic", "scalar", ...; return the class and the reason."""
    if isinstance(value, (int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool)):
        return "scalar", "a number"
    if isinstance(value, torch.Generator):
        return "generator", "a random number generator"
    if not isinstance(value, torch.Tensor):
        return "opaque", f"a {type(value).__name__}"
    if part == "backward":
        return ("managed", "saved by the forward pass") if is_saved else ("dynamic", "a gradient of an output")
    return ("static", "a parameter or buffer") if is_static else ("dynamic", "an argument")


def _is_untouched(node: Node, internal: Sequence[Any]) -> bool:
    """Return whether no operator uses the input `node`, and it is not in `internal`, the outputs that AOTAutograd keeps."""
    return all(user.op == "output" for user in node.users) and not any(output is node for output in internal)


def _symbols(node: Node) -> frozenset[Any]:
    """Return the symbols of dynamic shapes in the sizes and strides of the tensors that a node returns."""
    return symbols_of(*(number for tensor in tensors_of(node) for number in (*tensor.shape, *tensor.stride())))


def _unsafe_nodes(gm: GraphModule, inputs: Sequence[GraphInput], device: torch.device) -> dict[Node, Skip]:
    opaque = {node: spec for node, spec in zip(placeholders(gm), inputs, strict=True) if spec.kind == "opaque"}
    nodes = (node for node in gm.graph.nodes if node.op not in ("placeholder", "output"))
    skips = ((node, _why_unsafe(node, opaque, device)) for node in nodes)
    return {node: replace(skip, location=location_of(node)) for node, skip in skips if skip is not None}


def _why_unsafe(node: Node, opaque: Mapping[Node, GraphInput], device: torch.device) -> Skip | None:
    """Return a Skip that says why a node cannot be captured, with no location set; None if it can be captured."""
    for source in node.all_input_nodes:
        if source in opaque:
            spec = opaque[source]
            return Skip(f"input {spec.name} is {spec.why}", advice="pass tensors and numbers instead")
    wrapped = (arg for arg in node.args if isinstance(arg, torch._ops.OpOverload))  # operators inside of a higher-order one
    for target in (node.target, *wrapped):
        for tag, skip in _UNSAFE.items():
            if tag in getattr(target, "tags", ()):
                return replace(skip, reason=f"{target} {skip.reason}")
    if any(is_unbacked(tensor.shape) for tensor in tensors_of(node)):  # not every node with Tag.dynamic_output_shape has one
        return Skip(f"{node.target} returns a size that depends on values", None, _FIX_SIZE, "size")
    devices = {tensor.device for near in (node, *node.all_input_nodes) for tensor in tensors_of(near)}
    others = sorted(str(other) for other in devices if other not in (device, torch.device("meta")))
    return Skip(f"{node.name} is on {', '.join(others)}", advice=f"create it on {device}") if others else None


def _users_of_unbacked_sizes(gm: GraphModule) -> dict[Node, Skip]:
    """Return the nodes that take tensors of data-dependent (unbacked) size, each with the reason why it cannot be captured."""
    return {
        node: Skip(f"{node.target} takes a size that depends on values", location_of(node), kind="size")
        for node in gm.graph.nodes
        if node.op == "call_function"
        and any(is_unbacked(tensor.shape) for near in node.all_input_nodes for tensor in tensors_of(near))
    }
