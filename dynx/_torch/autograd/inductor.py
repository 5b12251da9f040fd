"""Inductor, with a say in what becomes of each graph that it compiles.

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
Look = Callable[[Literal["forward", "backward", "inference"], Any, Sequence[Any]], Callable[[Compiled], Any]]


_alone = RLock()


@contextmanager
def keeping_saved_tensors() -> Iterator[None]:
    """Have AOTAutograd compile backward passes that may run again: others write over what the forward pass saved.

    Torch: `collect_bw_donated_buffer_idxs` finds what may be overwritten. `config.donated_buffer=False` is not enough: a graph
    that was compiled with it raises for `retain_graph=True` wherever it is not set, as in the threads of autograd (2.11, 2.13
    and 2.15). The cache of AOTAutograd does not know of this.
    """
    from torch._functorch import config as functorch_config

    with (
        _alone,
        hooks.replace(hook_point("donated_buffers"), _none_of_them),
        functorch_config.patch(enable_autograd_cache=False),
    ):
        yield


def _none_of_them(*args: Any, **kwargs: Any) -> list[int]:
    return []


def with_inductor(look: Look) -> Callable[[Any, Sequence[Any]], Any]:
    """Make a backend that compiles with inductor.

    `look(part, gm, example_inputs)` is called before a graph is compiled, and gives what makes of the compiled graph (which
    takes its arguments in a list, and empties it) what is to be called in its stead.
    """

    require("compile_fx", "compile_fx_inner", "autograd_config")

    def compile_with_inductor(gm: Any, example_inputs: Sequence[Any]) -> Any:
        from torch._functorch import config as functorch_config
        from torch._inductor.compile_fx import compile_fx

        # the cache of AOTAutograd would give compiled graphs without asking; that of inductor is used
        with functorch_config.patch(enable_autograd_cache=False):
            return compile_fx(gm, example_inputs, inner_compile=_inner(look), config_patches={"triton.cudagraphs": False})

    return compile_with_inductor


def _inner(look: Look) -> Callable[..., Any]:
    from torch._inductor.compile_fx import compile_fx_inner

    def inner_compile(gm: Any, example_inputs: Sequence[Any], **options: Any) -> Any:
        part = "backward" if options.get("is_backward") else "inference" if options.get("is_inference") else "forward"
        wrap = look(part, gm, example_inputs)  # type: ignore[arg-type]
        return wrap(compile_fx_inner(gm, example_inputs, **options))

    return inner_compile
