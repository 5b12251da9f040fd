"""Compile with inductor, and let a callback wrap each compiled graph.

Torch: `compile_fx(..., inner_compile=)` and `compile_fx_inner`, alike in 2.11, 2.13 and 2.15.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import RLock
from typing import Any, Literal

from dynx._torch import hooks
from dynx._torch.capabilities import hook_point, require

Compiled = Callable[[list[Any]], Any]
# takes the kind of graph, the graph and its example inputs; returns a wrapper for the compiled graph
ChooseWrapper = Callable[[Literal["forward", "backward", "inference"], Any, Sequence[Any]], Callable[[Compiled], Any]]

_lock = RLock()


@contextmanager
def keeping_saved_tensors() -> Iterator[None]:
    """Keep backward graphs compiled in this context from reusing the memory of saved tensors, so that they can run repeatedly.

    Torch: `collect_bw_donated_buffer_idxs` returns the saved tensors whose memory a backward graph may overwrite.
    `config.donated_buffer=False` is not enough: a graph that was compiled with it raises for `retain_graph=True` wherever the
    option is not set, as in the threads of autograd (2.11, 2.13 and 2.15). The cache of AOTAutograd does not include this
    choice in its key, so it is disabled meanwhile.
    """
    from torch._functorch import config as functorch_config

    with (
        _lock,
        hooks.replace(hook_point("donated_buffers"), _no_donated_buffers),
        functorch_config.patch(enable_autograd_cache=False),
    ):
        yield


def _no_donated_buffers(*args: Any, **kwargs: Any) -> list[int]:
    return []


def with_inductor(choose_wrapper: ChooseWrapper) -> Callable[[Any, Sequence[Any]], Any]:
    """Return a backend that compiles graphs with inductor and wraps each of them with a function from `choose_wrapper`.

    `choose_wrapper(kind, gm, example_inputs)` is called before a graph is compiled. It returns a function that takes the
    compiled graph, which is boxed, and returns the callable to use instead.
    """

    require("compile_fx", "compile_fx_inner", "autograd_config")

    def compile_with_inductor(gm: Any, example_inputs: Sequence[Any]) -> Any:
        from torch._functorch import config as functorch_config
        from torch._inductor.compile_fx import compile_fx

        # the cache of AOTAutograd would return compiled graphs without this call; that of inductor is used
        with functorch_config.patch(enable_autograd_cache=False):
            return compile_fx(
                gm, example_inputs, inner_compile=_inner(choose_wrapper), config_patches={"triton.cudagraphs": False}
            )

    return compile_with_inductor


def _inner(choose_wrapper: ChooseWrapper) -> Callable[..., Any]:
    from torch._inductor.compile_fx import compile_fx_inner

    def inner_compile(gm: Any, example_inputs: Sequence[Any], **options: Any) -> Any:
        kind = "backward" if options.get("is_backward") else "inference" if options.get("is_inference") else "forward"
        wrap = choose_wrapper(kind, gm, example_inputs)  # type: ignore[arg-type]
        return wrap(compile_fx_inner(gm, example_inputs, **options))

    return inner_compile
