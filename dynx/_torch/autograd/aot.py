"""Run AOTAutograd with dynx's graph compilers, and read its metadata of the graph that is being compiled.

Torch: `aot_autograd` and `TracingContext.fw_metadata`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from dynx._torch.cache.guard_failures import guard_source
from dynx._torch.capabilities import require

GraphCompiler = Callable[[Any, Sequence[Any]], Callable[[list[Any]], Any]]


class GraphFacts(NamedTuple):
    """Metadata of the graph that AOTAutograd is compiling."""

    static: frozenset[int]  # indices of the inputs that are parameters or buffers
    user_outputs: int
    acts_besides: bool  # whether runtime wrappers set the grad mode of the caller, or mark outputs with dynamic sizes
    regenerated: frozenset[int]  # outputs that runtime wrappers replace by a view of another tensor with the same layout


def with_compilers(forward: GraphCompiler, backward: GraphCompiler, inference: GraphCompiler) -> Callable[..., Any]:
    """Return an AOTAutograd backend that compiles forward, backward and inference graphs with these three compilers.

    Inference graphs mutate their inputs themselves. In training, the forward graph returns the new values of mutated inputs,
    and a runtime wrapper of AOTAutograd copies them to the inputs.
    """
    require("aot_autograd", "forward_metadata", "saved_count", "weak_tensor", "saved_tensor_hooks")
    from torch._dynamo.backends.common import aot_autograd

    return aot_autograd(
        fw_compiler=forward, bw_compiler=backward, inference_compiler=inference, keep_inference_input_mutations=True
    )


def input_sources(gm: Any) -> list[str]:
    """Return the guard source of each input of a Dynamo graph, such as `L['x']`; an empty string if it has no source."""
    sources = (getattr(node.meta.get("grapharg"), "source", None) for node in gm.graph.find_nodes(op="placeholder"))
    return ["" if source is None else guard_source(source) for source in sources]


def graph_facts() -> GraphFacts:
    """Return AOTAutograd's metadata of the graph being compiled; call it only from a compiler given to `with_compilers`."""
    from torch._guards import TracingContext

    metadata: Any = TracingContext.get().fw_metadata
    return GraphFacts(
        frozenset(metadata.static_input_indices),
        metadata.num_forward_returns,
        metadata.grad_enabled_mutation is not None or bool(metadata.dynamic_outputs),
        _regenerated(metadata),
    )


def _regenerated(metadata: Any) -> frozenset[int]:
    """Return the indices of graph outputs that AOTAutograd replaces by a new view of another tensor, such as an input.

    Exception: AOTAutograd returns an output unchanged if it is the base of other outputs. Torch: `gen_alias_from_base`.
    """
    if any(type(meta).__name__ == "SubclassCreationMeta" for meta in metadata.subclass_fw_graph_out_meta):
        return frozenset()  # one tensor subclass is several outputs of the graph
    first, infos = metadata.num_mutated_inp_runtime_indices, metadata.output_info
    bases = {info.base_idx for info in infos if info.output_type.name == "alias_of_intermediate_base_is_user_output"}
    aliases = (index for index, info in enumerate(infos) if info.output_type.name.startswith("alias_of_"))
    return frozenset(first + index for index in aliases if index not in bases)


def count_saved(gm: Any) -> int:
    """Return how many inputs of a backward graph the forward graph saved; tangents and RNG state are not counted."""
    from torch._inductor.utils import count_tangents

    return int(count_tangents(gm))


def boxed(call: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """Mark a function as boxed: it takes its arguments in a list and clears that list."""
    call._boxed_call = True  # type: ignore[attr-defined]
    return call


def static_inputs(gm: Any) -> list[int]:
    """Return the indices of the inputs of a Dynamo graph that are parameters or buffers."""
    nodes = gm.graph.find_nodes(op="placeholder")
    return [index for index, node in enumerate(nodes) if node.meta.get("tensor_dict", {}).get("_dynamo_static_input_type")]
