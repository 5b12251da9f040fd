"""Results that alias arguments: each call returns views of its own arguments instead of copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from dynx.cudagraphs._runtime.interface import Run


class OutputAlias(NamedTuple):
    """A result of a graph that is one of its arguments or a view of it; both are given by index."""

    result: int
    argument: int
    # size, stride, and storage offset relative to the argument's; None for the argument itself
    layout: tuple[tuple[int, ...], tuple[int, ...], int] | None


def find_aliases(results: Sequence[Any], arguments: Sequence[Any]) -> list[OutputAlias]:
    """Find the results that are arguments, or views of them with the same dtype."""
    aliases: list[OutputAlias] = []
    argument_at: dict[int, int] = {}  # by the address of the storage
    for index, argument in enumerate(arguments):
        if type(argument) in (torch.Tensor, torch.nn.Parameter) and argument.numel():
            argument_at.setdefault(argument.untyped_storage().data_ptr(), index)
    for number, result in enumerate(results):
        if not isinstance(result, torch.Tensor):
            continue
        same = next((index for index, argument in enumerate(arguments) if result is argument), None)
        if same is not None:
            aliases.append(OutputAlias(number, same, None))
            continue
        base = argument_at.get(result.untyped_storage().data_ptr())
        if base is not None and _is_plain_view(result, arguments[base]):
            offset = result.storage_offset() - arguments[base].storage_offset()
            aliases.append(OutputAlias(number, base, (tuple(result.size()), tuple(result.stride()), offset)))
    return aliases


def _is_plain_view(view: torch.Tensor, base: torch.Tensor) -> bool:
    """Return whether `base.as_strided` can rebuild the view: same dtype, no conjugate or negative bit, no subclass."""
    has_bits = view.is_conj() or view.is_neg() or base.is_conj() or base.is_neg()
    return type(view) in (torch.Tensor, torch.nn.Parameter) and view.dtype == base.dtype and not has_bits


def with_aliases(aliases: Sequence[OutputAlias], run: Run) -> Run:
    """Return a function that runs `run` and fills in the results that alias the arguments of the call."""

    def run_with_aliases(args: Sequence[Any]) -> list[Any]:
        outputs = run(args)
        for result, argument, layout in aliases:
            output = args[argument]
            if layout is not None:
                size, stride, offset = layout
                output = output.as_strided(size, stride, output.storage_offset() + offset)
            outputs[result] = output
        return outputs

    return run_with_aliases
