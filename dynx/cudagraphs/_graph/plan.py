"""How a graph is captured: the class of each input, and why it may not be captured at all."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import prod
from typing import Any

import torch
from torch.fx import GraphModule, Node

from dynx._torch.autograd.aot import count_saved, graph_facts
from dynx._torch.tracing.shape_facts import is_unbacked, symbols_of
from dynx._trace.guard_requests import short_source
from dynx.advice import spoken
from dynx.cudagraphs._graph.effects import mutated_inputs
from dynx.cudagraphs._graph.fx import location_of, placeholders, tensors_of, value_of
from dynx.records.cudagraphs import GraphInput, GraphPlan, InputClass, Part, Skip, SkipKind

_UNSAFE: dict[torch.Tag, tuple[str, str, SkipKind]] = {  # tags of operators: why, what to do, what kind that is
    torch.Tag.cudagraph_unsafe: (
        "cannot be captured",
        "call it outside of the compiled function, if it need not be inside",
        "operator",
    ),
    torch.Tag.data_dependent_output: (
        "reads a value of a tensor",
        "keep it a tensor: torch.where, a mask, a tensor argument",
        "value",
    ),
}
_FIX_SIZE = "make the size fixed: torch.where instead of a mask, torch.nonzero_static, padding"


def plan_of(
    gm: GraphModule, part: Part, device: torch.device, sources: Sequence[str] = (), moving: Collection[str] = ()
) -> tuple[GraphPlan, dict[Node, Skip]]:
    """Look at a graph while it is compiled; `sources` are what Dynamo passes to it, where that is known.

    `moving` names what the forward graph saved outside of recordings. Gives also the nodes that cannot be captured.
    """
    facts = graph_facts()
    saved = count_saved(gm) if part == "backward" else 0
    written = mutated_inputs(gm)
    nodes, inputs, outputs = placeholders(gm), [], list(gm.graph.output_node().args[0])
    user_outputs = facts.user_outputs if part == "forward" else len(outputs)
    told = frozenset[Any]().union(*(symbols_of(value_of(each)) for each in nodes))
    sizes = frozenset[Any]().union(*map(_symbols, gm.graph.nodes))
    named = len(sources) == len(nodes) and part != "backward"
    for index, node in enumerate(nodes):
        name = spoken(short_source(sources[index])) if named and sources[index] else node.name
        kind, why = _class_of(value_of(node), part, is_static=index in facts.static, is_saved=index < saved)
        if kind == "managed" and node.name in moving:
            kind, why = "dynamic", "saved by what is not captured"
        is_size = bool(symbols_of(value_of(node)) & sizes)
        if kind in ("dynamic", "scalar") and not is_size and _is_untouched(node, outputs[user_outputs:]):
            kind, why = "untouched", "no operator reads it"
        is_fixed, is_told = not _symbols(node), _symbols(node) <= told
        nbytes = sum(each.element_size() * prod(each.shape) for each in tensors_of(node)) if is_fixed else 0
        line = location_of(node)
        inputs.append(
            GraphInput(
                name,
                kind,
                why,
                index in written,
                is_fixed=is_fixed,
                is_told=is_told,
                nbytes=nbytes,
                location=line,
                node=node.name,
            )
        )
    unsafe, followers = _unsafe_nodes(gm, inputs, device), _followers(gm)
    passed = tuple(
        (at, nodes.index(each))
        for at, each in enumerate(outputs)
        if each in nodes and inputs[nodes.index(each)].kind == "untouched"
    )
    skips = tuple(unsafe.values()) or tuple(followers.values())[:1]  # a size may come from the forward pass
    regenerated = () if part == "backward" else tuple(sorted(facts.regenerated))
    plan = GraphPlan(part, tuple(inputs), user_outputs, skips, is_pure=not written, passed=passed, regenerated=regenerated)
    return plan, {
        **unsafe,
        **{node: skip for node, skip in followers.items() if node not in unsafe},
    }


def _class_of(value: object, part: Part, *, is_static: bool, is_saved: bool) -> tuple[InputClass, str]:
    if isinstance(value, (int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool)):
        return "scalar", "a number"
    if not isinstance(value, torch.Tensor):
        return "opaque", f"a {type(value).__name__}"
    if part == "backward":
        return ("managed", "saved by the forward pass") if is_saved else ("dynamic", "a gradient of an output")
    return ("static", "a parameter or buffer") if is_static else ("dynamic", "an argument")


def _is_untouched(node: Node, internal: Sequence[Any]) -> bool:
    """Tell whether a node is a result for the user, or nothing."""
    return all(each.op == "output" for each in node.users) and not any(each is node for each in internal)


def _symbols(node: Node) -> frozenset[Any]:
    """Give the symbols in sizes and strides of the tensors of a node."""
    return symbols_of(*(number for each in tensors_of(node) for number in (*each.shape, *each.stride())))


def _unsafe_nodes(gm: GraphModule, inputs: Sequence[GraphInput], device: torch.device) -> dict[Node, Skip]:
    opaque = {node: each for node, each in zip(placeholders(gm), inputs, strict=True) if each.kind == "opaque"}
    found = ((node, _why_not(node, opaque, device)) for node in gm.graph.nodes if node.op not in ("placeholder", "output"))
    return {node: Skip(why[0], location_of(node), why[1], why[2]) for node, why in found if why}


def _why_not(node: Node, opaque: Mapping[Node, GraphInput], device: torch.device) -> tuple[str, str, SkipKind] | None:
    """Give why a node cannot be captured, what to do about it, and what kind of reason it is."""
    for each in node.all_input_nodes:
        if each in opaque:
            return f"input {opaque[each].name} is {opaque[each].why}", "give tensors and numbers instead", "operator"
    for target in (node.target, *(each for each in node.args if isinstance(each, torch._ops.OpOverload))):  # of one in another
        for tag, (why, advice, kind) in _UNSAFE.items():
            if tag in getattr(target, "tags", ()):
                return f"{target} {why}", advice, kind
    if any(is_unbacked(each.shape) for each in tensors_of(node)):  # not for every node with Tag.dynamic_output_shape
        return f"{node.target} gives a size that depends on values", _FIX_SIZE, "size"
    devices = {each.device for near in (node, *node.all_input_nodes) for each in tensors_of(near)}
    elsewhere = sorted(str(each) for each in devices if each not in (device, torch.device("meta")))
    if not elsewhere:
        return None
    return f"{node.name} is on {', '.join(elsewhere)}", f"have it on {device} from the beginning", "operator"


def _followers(gm: GraphModule) -> dict[Node, Skip]:
    """Give the nodes that take what has another size on each call."""
    return {
        node: Skip(f"{node.target} takes a size that depends on values", location_of(node), kind="size")
        for node in gm.graph.nodes
        if node.op == "call_function"
        and any(is_unbacked(each.shape) for near in node.all_input_nodes for each in tensors_of(near))
    }
