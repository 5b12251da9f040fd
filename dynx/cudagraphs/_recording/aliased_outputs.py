"""Results that alias arguments: each call returns views of its own arguments instead of copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from dynx._torch.ops.views import view_of_memory, with_bits
from dynx.cudagraphs._runtime.interface import Run


class ViewLayout(NamedTuple):
    """The layout of a view in the memory of an argument."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int  # from the first element of the argument: in elements, or in bytes if `dtype` is not None
    dtype: torch.dtype | None = None  # None for a view with the argument's dtype and no conjugate or negative bit
    is_conj: bool = False
    is_neg: bool = False

    def of(self, argument: torch.Tensor) -> torch.Tensor:
        """Return a view of `argument` that has this layout."""
        if self.dtype is None:
            return argument.as_strided(self.size, self.stride, argument.storage_offset() + self.offset)
        view = view_of_memory(argument, self.dtype, self.size, self.stride, self.offset)
        return with_bits(view, is_conj=self.is_conj, is_neg=self.is_neg)


class OutputAlias(NamedTuple):
    """A result of a graph that is one of its arguments, or a view of one; `result` and `argument` are their indices."""

    result: int
    argument: int
    layout: ViewLayout | None  # None for the argument itself


def find_aliases(results: Sequence[Any], arguments: Sequence[Any]) -> list[OutputAlias]:
    """Return the results that are arguments, or views of arguments."""
    aliases: list[OutputAlias] = []
    argument_at: dict[int, int] = {}  # by the address of the storage
    for index, argument in enumerate(arguments):
        if _is_plain(argument) and argument.numel():
            argument_at.setdefault(argument.untyped_storage().data_ptr(), index)
    for number, result in enumerate(results):
        if not isinstance(result, torch.Tensor):
            continue
        same = next((index for index, argument in enumerate(arguments) if result is argument), None)
        if same is not None:
            aliases.append(OutputAlias(number, same, None))
        elif _is_plain(result) and (base := argument_at.get(result.untyped_storage().data_ptr())) is not None:
            aliases.append(OutputAlias(number, base, _layout_in(result, arguments[base])))
    return aliases


def _is_plain(value: Any) -> bool:
    return type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout is torch.strided


def _layout_in(view: torch.Tensor, base: torch.Tensor) -> ViewLayout:
    size, stride = tuple(view.size()), tuple(view.stride())
    if view.dtype == base.dtype and not (view.is_conj() or view.is_neg() or base.is_conj() or base.is_neg()):
        return ViewLayout(size, stride, view.storage_offset() - base.storage_offset())
    offset = view.storage_offset() * view.itemsize - base.storage_offset() * base.itemsize
    return ViewLayout(size, stride, offset, view.dtype, view.is_conj(), view.is_neg())


def with_aliases(aliases: Sequence[OutputAlias], run: Run) -> Run:
    """Return a function that runs `run` and fills in the results that alias the arguments of the call."""

    def run_with_aliases(args: Sequence[Any]) -> list[Any]:
        outputs = run(args)
        for result, argument, layout in aliases:
            outputs[result] = args[argument] if layout is None else layout.of(args[argument])
        return outputs

    return run_with_aliases
