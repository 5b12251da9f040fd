"""Compile a function again, without using or changing its cache entries, and with other settings of torch.

Torch: `torch._dynamo.optimize` with `isolate_recompiles` where torch has it; the settings `recompile_limit` and
`accumulated_recompile_limit`, and `enable_autograd_cache` of AOTAutograd.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from types import FunctionType, SimpleNamespace
from typing import Any

from dynx._torch.capabilities import require
from dynx._torch.compilation.backend_key import keyed_backend, torch_backend
from dynx._torch.compilation.isolation import compiler, has_regions
from dynx._torch.compilation.wrappers import cells_of, is_module_call
from dynx.errors import DynxError

_NO_LIMIT = 1 << 30


def backend_of(compiled: Any) -> Any | None:
    """Return the backend of a function that torch.compile returned; None for other functions."""
    from torch._dynamo.eval_frame import innermost_backend

    cells = cells_of(compiled)
    return innermost_backend(cells["callback"].cell_contents) if "callback" in cells else None


def is_fullgraph(compiled: Any) -> bool:
    """Return whether a function that torch.compile returned raises at graph breaks. Torch: `OptimizeContext.fullgraph`."""
    cells = cells_of(compiled)
    return "self" in cells and bool(getattr(cells["self"].cell_contents, "fullgraph", False))


def compile_anew(fn: Callable[..., Any], backend: Any) -> Callable[..., Any]:
    """Compile a new function that only calls `fn`, so that torch compiles `fn` again instead of using cache entries of `fn`."""
    return compile_apart(_with_code_of_its_own(fn), backend)


def compile_apart(
    fn: Callable[..., Any], backend: Any, *, fullgraph: bool = False, in_place: bool = False
) -> Callable[..., Any]:
    """Compile a function with cache entries of its own, which no other compiled function uses or has to check.

    Dynamo compiles the frame of the function itself. Only if torch has no regions of cache entries (see `isolation`), a module
    is compiled through a wrapper.

    Args:
        fn: A function or module that is not compiled.
        backend: The name of a backend, a backend function, or the result of `backend_of`.
        fullgraph: As in torch.compile.
        in_place: Compile the function's code object instead of a copy, if torch has no regions of cache entries; the caller
            must have copied the code object.
    """
    require("optimize", "optimize_context", "innermost_backend")
    if not has_regions() and is_module_call(fn):
        fn = _with_code_of_its_own(fn)
    key = SimpleNamespace(value=object(), settings={}, isolation=object(), of_dynx=True)  # read as a `CacheKey`
    inner = backend if hasattr(backend, "compiler_name") else torch_backend(backend)
    return compiler(keyed_backend(inner, key, lambda: key.value), fullgraph=fullgraph, in_place=in_place)(fn)


def _with_code_of_its_own(fn: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    # own globals too: Dynamo adds names to them, and removes the names when the code object is freed, at exit at the latest
    return FunctionType(
        call.__code__.replace(), {"__name__": __name__, "__builtins__": builtins}, "call", None, call.__closure__
    )


def config_value(path: str) -> Any:
    """Return a setting of torch by its full name, such as "torch._inductor.config.fallback_random"."""
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


@contextmanager
def own_errors() -> Iterator[None]:
    """Raise dynx's own errors instead of the `BackendCompilerFailed` in which torch wraps them during a compilation."""
    require("backend_error")
    from torch._dynamo.exc import BackendCompilerFailed

    try:
        yield
    except BackendCompilerFailed as error:
        if isinstance(error.inner_exception, DynxError):
            raise error.inner_exception from None
        raise


def without_autograd_cache() -> AbstractContextManager[None]:
    """Disable AOTAutograd's cache, so that AOTAutograd traces every graph."""
    from torch._functorch import config as functorch_config

    return functorch_config.patch(enable_autograd_cache=False)


def backward_as_often_as_eager_code() -> AbstractContextManager[None]:
    """Disable donated buffers, so that compiled backward passes can run repeatedly with `retain_graph=True`."""
    from torch._functorch import config as functorch_config

    return functorch_config.patch(donated_buffer=False)


def random_numbers_of_eager_code() -> AbstractContextManager[None]:
    """Make inductor draw the same random numbers as eager code (`fallback_random`), which is slower than its own generator."""
    from torch._inductor import config as inductor_config

    return inductor_config.patch(fallback_random=True)


def without_worker_processes() -> AbstractContextManager[None]:
    """Make inductor compile kernels in this process: a forked child has no connection to its parent's compile workers."""
    from torch._inductor import config as inductor_config

    return inductor_config.patch(compile_threads=1)


@contextmanager
def without_limits() -> Iterator[None]:
    """Lift the recompile limits and disable AOTAutograd's cache inside this context, so that torch compiles every time."""
    import torch

    limits = {"recompile_limit": _NO_LIMIT, "accumulated_recompile_limit": _NO_LIMIT}
    with torch._dynamo.config.patch(**limits), without_autograd_cache():
        yield
