"""Results that are arguments or views of arguments: a call gets those of its own, not copies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

Run = Callable[[Sequence[Any]], list[Any]]


class View(NamedTuple):
    """A result that lies in the memory of an argument."""

    result: int
    argument: int
    layout: tuple[tuple[int, ...], tuple[int, ...], int] | None  # size, stride and distance; None where it is the argument


def views_among(results: Sequence[Any], arguments: Sequence[Any]) -> list[View]:
    """Find the results that are arguments, or views of them with the same dtype."""
    found, places = list[View](), dict[int, int]()
    for index, each in enumerate(arguments):
        if type(each) in (torch.Tensor, torch.nn.Parameter) and each.numel():
            places.setdefault(each.untyped_storage().data_ptr(), index)
    for number, each in enumerate(results):
        if not isinstance(each, torch.Tensor):
            continue
        same = next((index for index, other in enumerate(arguments) if each is other), None)
        if same is not None:
            found.append(View(number, same, None))
            continue
        base = places.get(each.untyped_storage().data_ptr())
        if base is not None and _is_plain(each, arguments[base]):
            distance = each.storage_offset() - arguments[base].storage_offset()
            found.append(View(number, base, (tuple(each.size()), tuple(each.stride()), distance)))
    return found


def _is_plain(view: torch.Tensor, base: torch.Tensor) -> bool:
    is_read_as_it_is = not (view.is_conj() or view.is_neg() or base.is_conj() or base.is_neg())
    return type(view) in (torch.Tensor, torch.nn.Parameter) and view.dtype == base.dtype and is_read_as_it_is


def handing_on(views: Sequence[View], run: Run) -> Run:
    """Give what runs, and puts views of the arguments of a call among the results."""

    def run_and_hand_on(args: Sequence[Any]) -> list[Any]:
        outputs = run(args)
        for result, argument, layout in views:
            given = args[argument]
            if layout is not None:
                size, stride, distance = layout
                given = given.as_strided(size, stride, given.storage_offset() + distance)
            outputs[result] = given
        return outputs

    return run_and_hand_on
