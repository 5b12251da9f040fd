"""AOTAutograd with compilers of our own, and what it knows of a graph while one of them runs.

Torch: `aot_autograd` and `TracingContext.fw_metadata`, alike in 2.11, 2.13 and 2.15.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from dynx._torch.cache.guard_failures import guard_source
from dynx._torch.capabilities import require

GraphCompiler = Callable[[Any, Sequence[Any]], Callable[[list[Any]], Any]]


class GraphFacts(NamedTuple):
    """What AOTAutograd knows of the graph that is being compiled."""

    static: frozenset[int]  # inputs that are parameters or buffers
    user_outputs: int
    acts_besides: bool  # wrappers set the grad mode of who calls, or mark results whose sizes change
    regenerated: frozenset[int]  # outputs of which wrappers read the layout only: the user gets a view of another tensor


def with_compilers(forward: GraphCompiler, backward: GraphCompiler, inference: GraphCompiler) -> Callable[..., Any]:
    """Make a backend that compiles forward, backward and inference graphs apart; inference graphs change inputs themselves."""
    require("aot_autograd", "forward_metadata", "saved_count", "weak_tensor", "saved_tensor_hooks")
    from torch._dynamo.backends.common import aot_autograd

    return aot_autograd(
        fw_compiler=forward, bw_compiler=backward, inference_compiler=inference, keep_inference_input_mutations=True
    )


def input_sources(gm: Any) -> list[str]:
    """Name the values that Dynamo passes to a graph, in order, as guards do: `L['x']`; empty where it has no name.

    Torch: `meta["grapharg"].source` of a placeholder, alike in 2.11, 2.13 and 2.15.
    """
    found = []
    for node in gm.graph.find_nodes(op="placeholder"):
        source = getattr(node.meta.get("grapharg"), "source", None)
        found.append("" if source is None else guard_source(source))
    return found


def graph_facts() -> GraphFacts:
    """Give what is known of the graph that is being compiled; call it from a compiler only."""
    from torch._guards import TracingContext

    metadata: Any = TracingContext.get().fw_metadata
    return GraphFacts(
        frozenset(metadata.static_input_indices),
        metadata.num_forward_returns,
        metadata.grad_enabled_mutation is not None or bool(metadata.dynamic_outputs),
        _regenerated(metadata),
    )


def _regenerated(metadata: Any) -> frozenset[int]:
    """Torch: `gen_alias_from_base`; outputs that are the base of others are handed out, too."""
    if any(type(each).__name__ == "SubclassCreationMeta" for each in metadata.subclass_fw_graph_out_meta):
        return frozenset()  # each of which is several outputs of the graph
    first, found = metadata.num_mutated_inp_runtime_indices, metadata.output_info
    bases = {each.base_idx for each in found if each.output_type.name == "alias_of_intermediate_base_is_user_output"}
    aliases = (index for index, each in enumerate(found) if each.output_type.name.startswith("alias_of_"))
    return frozenset(first + index for index in aliases if index not in bases)


def count_saved(gm: Any) -> int:
    """Count the inputs of a backward graph that the forward graph saved; the others are gradients of its outputs."""
    from torch._inductor.utils import count_tangents

    return int(count_tangents(gm))


def boxed(call: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """Mark a function as one that takes its arguments in a list, which it empties."""
    call._boxed_call = True  # type: ignore[attr-defined]
    return call


def static_inputs(gm: Any) -> list[int]:
    """Give the indices of the inputs of one of Dynamo's graphs that are parameters or buffers.

    Torch: `meta["tensor_dict"]["_dynamo_static_input_type"]` of a placeholder, alike in 2.11, 2.13 and 2.15.
    """
    nodes = gm.graph.find_nodes(op="placeholder")
    return [index for index, node in enumerate(nodes) if node.meta.get("tensor_dict", {}).get("_dynamo_static_input_type")]
