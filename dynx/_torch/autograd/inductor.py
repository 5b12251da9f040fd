"""Compile graphs with inductor, as a whole or in parts, and let a callback choose the callable that runs each graph.

Torch: `compile_fx(..., inner_compile=)` and `compile_fx_inner`. `compile_fx_inner` reads two entries in the meta of a graph's
output node: the indices `user_visible_output_idxs` of the outputs whose strides it must keep, and the strides,
`original_output_strides`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from threading import RLock
from typing import Any, Literal, NamedTuple

import torch
from torch.fx import GraphModule

from dynx._torch import hooks
from dynx._torch.capabilities import hook_point, require
from dynx._torch.compilation.anew import without_autograd_cache

Compiled = Callable[[list[Any]], Any]


class Compiler(NamedTuple):
    """Functions that compile the whole graph or a part of it; the compiled code takes its arguments in a list and clears it."""

    whole: Callable[[], Compiled]
    part: Callable[[GraphModule], Compiled]  # its outputs have the layouts of the fake tensors


# takes the kind of graph, the graph and its example inputs; returns a function from a `Compiler` to the callable to use
ChooseCall = Callable[[Literal["forward", "backward", "inference"], Any, Sequence[Any]], Callable[[Compiler], Any]]

_lock = RLock()


@contextmanager
def keeping_saved_tensors() -> Iterator[None]:
    """Keep backward graphs compiled in this context from reusing the memory of saved tensors, so that they can run repeatedly.

    Torch: `collect_bw_donated_buffer_idxs` returns the saved tensors whose memory a backward graph may overwrite.
    `config.donated_buffer=False` is not enough: torch reads this option again when the backward graph runs, perhaps in a thread
    of autograd, where it still has its default, and then raises for `retain_graph=True` (2.11, 2.13 and 2.15). The cache keys
    of AOTAutograd and inductor do not show whether a graph may reuse the memory, so both caches are disabled in this context.
    """
    from torch._inductor import config as inductor_config

    with (
        _lock,
        hooks.replace(hook_point("donated_buffers"), _no_buffers),
        without_autograd_cache(),
        inductor_config.patch(fx_graph_cache=False),
    ):
        yield


def _no_buffers(*args: Any, **kwargs: Any) -> list[int]:
    return []


def with_inductor(choose_call: ChooseCall) -> Callable[[Any, Sequence[Any]], Any]:
    """Return a backend that compiles graphs with inductor, and lets `choose_call` choose the callable that runs each graph.

    `choose_call(kind, gm, example_inputs)` is called before a graph is compiled. It returns a function that takes a `Compiler`
    and returns the callable that runs the graph.
    """
    require("compile_fx", "compile_fx_inner", "autograd_config")

    def inner_compile(gm: Any, example_inputs: Sequence[Any], **options: Any) -> Any:
        from torch._inductor.compile_fx import compile_fx_inner

        kind = "backward" if options.get("is_backward") else "inference" if options.get("is_inference") else "forward"
        make = choose_call(kind, gm, example_inputs)  # type: ignore[arg-type]
        whole = partial(compile_fx_inner, gm, example_inputs, **options)
        return make(Compiler(whole, partial(_compile_part, options)))

    def compile_with_inductor(gm: Any, example_inputs: Sequence[Any]) -> Any:
        from torch._inductor.compile_fx import compile_fx

        # the cache of AOTAutograd would return compiled graphs without calling `choose_call`; the cache of inductor is used
        with without_autograd_cache():
            return compile_fx(gm, example_inputs, inner_compile=inner_compile, config_patches={"triton.cudagraphs": False})

    return compile_with_inductor


_OPTIONS_OF_PARTS = "is_backward", "is_inference", "graph_id", "cudagraphs", "boxed_forward_device_index"


def _compile_part(options: dict[str, Any], gm: GraphModule) -> Compiled:
    """Compile a part of a graph; all outputs get the layouts of their fake tensors, since other parts rely on them."""
    require("report_output_strides", "donated_inputs")
    from torch._guards import TracingContext
    from torch._inductor import config as inductor_config
    from torch._inductor.compile_fx import compile_fx_inner

    output = gm.graph.output_node()
    values = [node.meta.get("val") for node in output.args[0]]
    output.meta["user_visible_output_idxs"] = list(range(len(values)))
    output.meta["original_output_strides"] = [value.stride() if isinstance(value, torch.Tensor) else None for value in values]
    inputs = [node.meta.get("val") for node in gm.graph.nodes if node.op == "placeholder"]
    with (
        TracingContext.report_output_strides(),  # discard the strides: AOTAutograd expects those of the whole graph
        # the indices of donated inputs belong to the whole graph, and are not part of the cache key
        hooks.replace(hook_point("donated_inputs"), _no_buffers),
        inductor_config.patch(fx_graph_cache=False),
    ):
        compiled: Compiled = compile_fx_inner(
            gm, inputs, **{name: options[name] for name in _OPTIONS_OF_PARTS if name in options}
        )
    return compiled
