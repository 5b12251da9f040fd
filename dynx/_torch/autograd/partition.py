"""Read and edit the forward and backward graph of a compilation, after AOTAutograd's partitioner and before the compilers.

Torch: `maybe_inline_graph_saved_tensors_hooks`, which inlines saved-tensor hooks that are GraphModules, and `prepare_hook_gm`,
which traces them; `top_saved_tensors_hooks` and `saved_tensors_hooks_are_inlineable`. Torch inlines hooks only for the tensors
that `saved_tensors_hooks_filtering_mode` selects. The default, "donated", selects donated buffers. So torch inlines no hooks
inside `inductor.keeping_saved_tensors` of dynx, and none for tensors that activation checkpointing saves (never donated).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.fx import Graph, GraphModule

from dynx._torch import hooks
from dynx._torch.capabilities import hook_point, require


class Partition(NamedTuple):
    """The forward and backward graph of one compilation.

    The forward graph returns the outputs that AOTAutograd's runtime wrappers expect, then the saved tensors, then the saved
    sizes. The backward graph takes first the sizes, then the tensors; each placeholder has the name of the saved node in the
    forward graph.
    """

    forward: GraphModule
    backward: GraphModule
    user_outputs: int  # number of outputs of the forward graph before the saved ones
    copied_outputs: int  # number of first outputs of the forward graph, which are copied to inputs that the function mutates
    static: frozenset[int]  # inputs of the forward graph that are parameters or buffers
    trainable: frozenset[int]  # inputs that require a gradient
    mutated: frozenset[int]  # inputs whose data the function mutates: backward would read the new values
    hooks: tuple[Any, Any] | None  # the current saved-tensor hooks if both are GraphModules
    trace: Callable[[Callable[..., Any], tuple[Any, ...]], GraphModule]  # traces a function on fake tensors
    is_inductor: bool  # whether inductor compiles the graphs, which orders operators itself


OnPartition = Callable[[Partition], bool]


def on_partition(callback: OnPartition) -> hooks.Wrapping:
    """Until the handle is removed, call `callback` with the graphs of each compilation; if it raises, the compilation fails.

    If `callback` returns True, torch does not inline saved-tensor hooks into these graphs itself.
    """
    require("inline_hooks", "trace_hook", "top_hooks", "inlineable_hooks", "compiled_autograd_region")

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def inline(*args: Any) -> Any:
            partition = _partition(*args)
            return None if partition is not None and callback(partition) else original(*args)

        return inline

    return hooks.wrap(hook_point("inline_hooks"), make)


def _partition(
    forward: GraphModule, backward: GraphModule, outputs: int, metadata: Any, config: Any, static: Sequence[int]
) -> Partition | None:
    from torch._dynamo import compiled_autograd
    from torch._functorch._aot_autograd.graph_compile import prepare_hook_gm
    from torch._functorch._aot_autograd.utils import saved_tensors_hooks_are_inlineable, top_saved_tensors_hooks

    if compiled_autograd.in_compiled_autograd_region:
        return None  # the graph has no backward graph of its own
    top = top_saved_tensors_hooks()
    trainable = (index for index, info in enumerate(metadata.input_info) if info.requires_grad)
    return Partition(
        forward,
        backward,
        outputs,
        metadata.num_mutated_inp_runtime_indices,
        frozenset(static),
        frozenset(trainable),
        frozenset(index for index, info in enumerate(metadata.input_info) if info.mutates_data),
        tuple(top) if saved_tensors_hooks_are_inlineable(top) else None,
        lambda fn, args: prepare_hook_gm(config, fn, args),
        type(config.fw_compiler).__name__ == "SerializableAOTDispatchCompiler",
    )


def hook_module(fn: Callable[..., Any], cache_hash: str) -> GraphModule:
    """Return a GraphModule that calls `fn`, and that torch can inline as a saved-tensor hook.

    AOTAutograd's cache stores the module and the name of `fn`; `cache_hash` stands for `fn` in its cache keys.
    """
    graph = Graph()
    value = graph.placeholder("value")
    call = graph.call_function(fn, (value,))
    call.meta.update(is_wrapped=True, user_cache_hash=cache_hash)
    graph.output(call)
    module = GraphModule(torch.nn.Module(), graph)
    module.forward = torch.compiler.disable(fn)  # for eager code, also between two graphs, where Dynamo would compile it
    return module


def is_fake(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has no data because torch is tracing."""
    from torch._subclasses.fake_tensor import FakeTensor
    from torch._subclasses.functional_tensor import FunctionalTensor

    return isinstance(tensor, (FakeTensor, FunctionalTensor))


def only_element(constant: torch.Tensor) -> float | None:
    """Return the element of a one-element floating-point constant, even while torch traces; None for other tensors."""
    from torch.utils._python_dispatch import _disable_current_modes

    if is_fake(constant) or constant.numel() != 1 or not constant.dtype.is_floating_point:
        return None
    with _disable_current_modes():
        return float(constant)
