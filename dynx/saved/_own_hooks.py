"""`inlineable_hooks`: compile a pair of saved-tensor hooks of the user into the graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

import torch

from dynx.errors import UsageError
from dynx.saved._codec import Codec
from dynx.saved._hooks import SavedHooks, hooks
from dynx.saved._rules import rule

Pack = Callable[[torch.Tensor], Any]
Unpack = Callable[[Any], torch.Tensor]


@overload
def inlineable_hooks(pack: Pack, /, *, unpack: Unpack, cache_hash: str | None = None, validate: bool = True) -> SavedHooks: ...
@overload
def inlineable_hooks(
    pack: None = None, /, *, unpack: Unpack, cache_hash: str | None = None, validate: bool = True
) -> Callable[[Pack], SavedHooks]: ...
def inlineable_hooks(
    pack: Pack | None = None, /, *, unpack: Unpack, cache_hash: str | None = None, validate: bool = True
) -> SavedHooks | Callable[[Pack], SavedHooks]:
    """Return a context manager like `torch.autograd.graph.saved_tensors_hooks`, whose hooks are compiled into the graphs.

    `pack` is called with every saved tensor, also parameters and inputs, as in torch; it may return a tensor unchanged. Both
    functions are traced, so they must consist of torch operators.

    Args:
        pack: Takes a tensor, and returns the values to store, such as a tuple of tensors, sizes and constants. If omitted,
            the result is a decorator for `pack`.
        unpack: Takes the result of `pack`, and returns a tensor of the same shape, dtype and device as the packed tensor.
        cache_hash: A text that you change whenever a function changes. For functions that use objects dynx cannot hash.
        validate: Check that `unpack` restores the shape, dtype and device, and that no random numbers are drawn.

    Returns:
        A context manager, as from `saved.hooks`.

    Raises:
        UsageError: A function is not callable, or cannot be hashed.

    Example:
        >>> import torch
        >>> from dynx import saved
        >>> @saved.inlineable_hooks(unpack=lambda stored: stored.float())
        ... def half(tensor):
        ...     return tensor.to(torch.bfloat16)
        >>> square = torch.compile(lambda x: x * x, backend="aot_eager")
        >>> x = torch.tensor([1.001], requires_grad=True)
        >>> with half:
        ...     y = square(x)
        >>> y.backward()
        >>> x.grad
        tensor([2.])
    """
    if not callable(unpack):
        raise UsageError(f"unpack={unpack!r} is not callable\n  pass a function that takes the result of pack")

    def make(pack: Pack) -> SavedHooks:
        if not callable(pack):
            raise UsageError(f"pack={pack!r} is not callable\n  pass a function that takes a tensor")
        name = getattr(pack, "__qualname__", type(pack).__name__)
        codec = Codec(name, pack, unpack, "any")
        made = hooks(rule(codec, skip=()), cache_hash=cache_hash, validate=validate)
        if (module := getattr(pack, "__module__", None)) is not None:
            made._global = module, name  # a decorator binds the name of `pack` to the hooks
        return made

    return make if pack is None else make(pack)
