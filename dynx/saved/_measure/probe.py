"""Measure codecs on single saved tensors: the function is compiled once, then each measurement takes one backward pass."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import Any, TypeVar

import torch

from dynx.saved._codec import Codec
from dynx.saved._hooks import SavedHooks, hooks
from dynx.saved._rules import rule

T = TypeVar("T")

_active: dict[str, Codec] = {}  # the codecs that are measured, by the name of the tensor
_seconds: dict[str, float] = {}


def probes(names: Sequence[str]) -> SavedHooks:
    """Return hooks that insert an operator at the saved tensors with these names; `probe` chooses the codec that it applies."""
    rules = (rule(Codec("probe", partial(_pack, name), _unpack, "any"), name=f"^{re.escape(name)}$") for name in names)
    return hooks(*rules, cache_hash=f"probes {tuple(names)}", validate=False)


def probe(name: str, codec: Codec, backward: Callable[[], T]) -> tuple[T, float]:
    """Return the gradients that `backward()` computes if `codec` packs and unpacks the saved tensors called `name`.

    Forward must have run under the hooks of `probes`. Also return the seconds that packing and unpacking take, uncompiled.
    """
    _active[name] = codec
    _seconds[name] = 0.0
    try:
        gradients = backward()
    finally:
        del _active[name]
    return gradients, _seconds.pop(name)


def _pack(name: str, tensor: torch.Tensor) -> Any:
    return tensor, name


def _unpack(packed: Any) -> torch.Tensor:
    tensor, name = packed
    return torch.ops.dynx.probe(tensor, name)


def _probe(tensor: torch.Tensor, name: str) -> torch.Tensor:
    result = torch.empty_like(tensor)
    if (codec := _active.get(name)) is None or codec.why_not(tensor):
        return result.copy_(tensor)
    _wait(tensor)
    start = perf_counter()
    unpacked = codec.unpack(codec.pack(tensor))
    _wait(tensor)
    _seconds[name] += perf_counter() - start
    return result.copy_(unpacked)


def _wait(tensor: torch.Tensor) -> None:
    if tensor.is_cuda:
        torch.cuda.synchronize(tensor.device)


torch.library.custom_op("dynx::probe", _probe, mutates_args=()).register_fake(lambda tensor, name: torch.empty_like(tensor))
