"""Pack saved tensors where no graph is compiled: in eager code, and between the graphs of a function with graph breaks.

Without a graph, dynx does not know the module and name of a tensor, or how backward will read it. Rules with the options
`module` or `name` do not apply, and the output of an operation such as ReLU counts as a mask.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from dynx._reading.user_location import call_site
from dynx.errors import BadCodec
from dynx.records.saved import SavedKind
from dynx.saved._codec import Codec
from dynx.saved._rules import Candidate, Rule
from dynx.saved.codecs._recompute import NAME as RECOMPUTE

_MASKS = ("ReluBackward0", "ThresholdBackward0", "ReluBackward1", "LeakyReluBackward0")  # they read the result as a mask


class Packed(NamedTuple):
    """A tensor packed by a codec: the stored values, and the shape, dtype and device that `unpack` has to restore."""

    stored: Any
    codec: Codec
    shape: torch.Size
    dtype: torch.dtype
    device: torch.device
    validate: bool


class EagerTensor(NamedTuple):
    """A tensor that eager code saved, and how it was stored, for `saved.report`."""

    tensor: torch.Tensor
    candidate: Candidate
    rule: Rule | None
    stored: Any


_watching: list[list[EagerTensor]] = []


def pack_eagerly(tensor: torch.Tensor, rules: Sequence[Rule], *, validate: bool) -> Any:
    """Return what to store for a tensor that eager code saves: a `Packed` if a rule applies, else the detached tensor."""
    if torch.compiler.is_compiling() or torch.is_inference(tensor):
        return tensor.detach()
    candidate = _candidate(tensor, needs_line=any(rule.line is not None for rule in rules) or bool(_watching))
    rule = next((rule for rule in rules if rule.codec.name != RECOMPUTE and not rule.why_not(candidate)), None)
    stored: Any = tensor.detach()  # autograd restores the history; undetached, the tensor would be kept alive by its own graph
    result = stored
    if rule is not None:
        with torch.no_grad():
            stored = rule.codec.pack(stored)
        result = Packed(stored, rule.codec, tensor.shape, tensor.dtype, tensor.device, validate)
    for tensors in _watching:
        tensors.append(EagerTensor(tensor, candidate, rule, stored))
    return result


def unpack_eagerly(packed: Any) -> torch.Tensor:
    """Return the tensor for a result of `pack_eagerly`: unpack it if it is a `Packed`, else return it unchanged."""
    if not isinstance(packed, Packed):
        return packed
    with torch.no_grad():
        tensor = packed.codec.unpack(packed.stored)
    if packed.validate:
        _check(tensor, packed)
    return tensor


def _check(tensor: Any, packed: Packed) -> None:
    advice = "let pack store what unpack needs, such as (tensor.dtype, tensor.shape, ...)"
    for what in ("shape", "dtype", "device"):
        expected, actual = getattr(packed, what), getattr(tensor, what, None)
        if expected != actual:
            raise BadCodec(f"{packed.codec.name}: unpack returns {what} {actual}, but pack got {what} {expected}\n  {advice}")


@contextmanager
def watch_eager() -> Iterator[list[EagerTensor]]:
    """Collect the tensors that eager code saves under `saved.hooks` during a `with` block, for `saved.report`."""
    tensors: list[EagerTensor] = []
    _watching.append(tensors)
    try:
        yield tensors
    finally:
        _watching[:] = [other for other in _watching if other is not tensors]


def _candidate(tensor: torch.Tensor, *, needs_line: bool) -> Candidate:
    is_mask = tensor.dtype is torch.bool
    name = tensor.grad_fn.name() if tensor.grad_fn is not None else ""
    return Candidate(
        _kind(tensor),
        tensor,
        tensor.numel(),
        location=call_site() if needs_line else None,
        reads_as_mask=not is_mask and name in _MASKS,
        one_bit=is_mask,
    )


def _kind(tensor: torch.Tensor) -> SavedKind:
    base = tensor._base if tensor._base is not None else tensor
    if base.grad_fn is not None or (tensor.dtype is torch.bool and not base.requires_grad):
        return "activation"  # masks, such as that of dropout, require no gradient
    if base.requires_grad:
        return "param"
    return "buffer" if isinstance(base, torch.nn.Buffer) else "input"


def stored_bytes(stored: Any, device: torch.device) -> int:
    """Return the number of bytes of the tensors on `device` among the values that a codec stores."""
    leaves: Iterable[Any] = torch.utils._pytree.tree_leaves(stored)
    tensors = {id(leaf): leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.device == device}
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
