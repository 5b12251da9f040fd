"""How a graph is captured: the class of each input, and why it may not be captured at all."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import torch
from torch.fx import GraphModule, Node

from dynx._torch.aot import count_saved, graph_facts
from dynx._torch.facts import is_unbacked
from dynx._trace.requesters import short_source
from dynx.advice import spoken
from dynx.cudagraphs._graph import location_of, placeholders, tensors_of, value_of
from dynx.cudagraphs._mutation import mutated_inputs
from dynx.records.cudagraphs import GraphInput, GraphPlan, InputClass, Part, Skip

_UNSAFE = {  # tags of operators: why, and what to do
    torch.Tag.cudagraph_unsafe: ("cannot be captured", "call it outside of the compiled function, if it need not be inside"),
    torch.Tag.data_dependent_output: (
        "reads a value of a tensor",
        "keep it a tensor: torch.where, a mask, a tensor argument",
    ),
}
_FIX_SIZE = "make the size fixed: torch.where instead of a mask, torch.nonzero_static, padding"


def plan_of(
    gm: GraphModule, part: Part, device_type: str, sources: Sequence[str] = (), moving: Collection[str] = ()
) -> tuple[GraphPlan, dict[Node, Skip]]:
    """Look at a graph while it is compiled; `sources` are what Dynamo passes to it, where that is known.

    `moving` names what the forward graph saved outside of recordings. Gives also the nodes that cannot be captured.
    """
    facts = graph_facts()
    saved = count_saved(gm) if part == "backward" else 0
    written = mutated_inputs(gm)
    nodes, inputs = placeholders(gm), []
    named = len(sources) == len(nodes) and part != "backward"
    for index, node in enumerate(nodes):
        name = spoken(short_source(sources[index])) if named and sources[index] else node.name
        kind, why = _class_of(value_of(node), part, is_static=index in facts.static, is_saved=index < saved)
        if kind == "managed" and node.name in moving:
            kind, why = "dynamic", "saved by what is not captured"
        is_fixed = not _is_symbolic(node)
        nbytes = sum(each.nbytes for each in tensors_of(node)) if is_fixed else 0
        inputs.append(GraphInput(name, kind, why, index in written, is_fixed, nbytes, location_of(node)))
    outputs = facts.user_outputs if part == "forward" else len(gm.graph.output_node().args[0])
    unsafe = _unsafe_nodes(gm, inputs, device_type)
    plan = GraphPlan(part, tuple(inputs), outputs, tuple(unsafe.values()), is_pure=not written)
    return plan, {**_followers(gm), **unsafe}


def _class_of(value: object, part: Part, *, is_static: bool, is_saved: bool) -> tuple[InputClass, str]:
    if isinstance(value, (int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool)):
        return "scalar", "a number"
    if not isinstance(value, torch.Tensor):
        return "opaque", f"a {type(value).__name__}"
    if part == "backward":
        return ("managed", "saved by the forward pass") if is_saved else ("dynamic", "a gradient of an output")
    return ("static", "a parameter or buffer") if is_static else ("dynamic", "an argument")


def _is_symbolic(node: Node) -> bool:
    return any(isinstance(number, torch.SymInt) for each in tensors_of(node) for number in (*each.shape, *each.stride()))


def _unsafe_nodes(gm: GraphModule, inputs: Sequence[GraphInput], device_type: str) -> dict[Node, Skip]:
    opaque = {node: each for node, each in zip(placeholders(gm), inputs, strict=True) if each.kind == "opaque"}
    found = ((node, _why_not(node, opaque, device_type)) for node in gm.graph.nodes if node.op not in ("placeholder", "output"))
    return {node: Skip(why[0], location_of(node), why[1]) for node, why in found if why}


def _why_not(node: Node, opaque: Mapping[Node, GraphInput], device_type: str) -> tuple[str, str] | None:
    """Give why a node cannot be captured, and what to do about it."""
    for each in node.all_input_nodes:
        if each in opaque:
            return f"input {opaque[each].name} is {opaque[each].why}", "give tensors and numbers instead"
    for target in (node.target, *(each for each in node.args if isinstance(each, torch._ops.OpOverload))):  # of one in another
        for tag, (why, advice) in _UNSAFE.items():
            if tag in getattr(target, "tags", ()):
                return f"{target} {why}", advice
    if any(is_unbacked(each.shape) for each in tensors_of(node)):  # not for every node with Tag.dynamic_output_shape
        return f"{node.target} gives a size that depends on values", _FIX_SIZE
    elsewhere = {each.device.type for near in (node, *node.all_input_nodes) for each in tensors_of(near)} - {
        device_type,
        "meta",
    }
    where = ", ".join(sorted(elsewhere))
    return (f"{node.name} is on {where}", f"have it on {device_type} from the beginning") if elsewhere else None


def _followers(gm: GraphModule) -> dict[Node, Skip]:
    """Give the nodes that take what has another size on each call."""
    return {
        node: Skip(f"{node.target} takes a size that depends on values", location_of(node))
        for node in gm.graph.nodes
        if node.op == "call_function"
        and any(is_unbacked(each.shape) for near in node.all_input_nodes for each in tensors_of(near))
    }
