"""Having a captured graph read its inputs where a call has them, and the proof that it does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch

from dynx.cudagraphs._runtime.driver import Executable
from dynx.cudagraphs._runtime.interface import Copied
from dynx.cudagraphs._runtime.memcpy import copy_of, extent
from dynx.cudagraphs._runtime.node_params import Pointers, images_of
from dynx.cudagraphs._runtime.pointer_scan import NotPatchable, Range, Unexplained, Words, pointer_sites, points_into


class _Captured(Protocol):
    graph: torch.cuda.CUDAGraph
    executable: Executable
    outputs: Any
    set_targets: Callable[[Sequence[torch.Tensor]], None]


def patching(
    first: _Captured,
    second: _Captured,
    again: Callable[[], _Captured],
    sets: Sequence[Sequence[torch.Tensor]],
    given: Sequence[torch.Tensor],
    results: Copied,
) -> Callable[[Sequence[torch.Tensor]], None]:
    """Give what sets the inputs of the first capture, which is of `sets[0]`; the second is of `sets[1]`, `again` of `sets[0]`.

    The sets are copies of what was given. Raises NotPatchable where pointers cannot be told from other things, or do not do
    what they should.
    """
    inputs = [(_range(one), _range(two)) for one, two in zip(*sets, strict=True)]
    words = _words(first, second, again, inputs)
    if any(_lies_in(each, sets[0]) for each in _tensors(first.outputs)):
        raise NotPatchable("a result lies in an input")
    if points_into(images_of(first.graph), [_range(each) for each in given]):
        raise NotPatchable("it finds an input by another way too")
    pointers = Pointers(first.executable, words, len(inputs))
    _prove(first, pointers, sets, results)
    return pointers.set


_CAPTURES = 5  # with the same inputs, at most


def _words(first: _Captured, second: _Captured, again: Callable[[], _Captured], inputs: Sequence[tuple[Range, Range]]) -> Words:
    """Find the pointers to inputs, with as many captures as it takes to see what differs by chance."""
    one, two, others, litter = images_of(first.graph), images_of(second.graph), list[Any](), list[bytearray]()
    while True:
        others.append(images_of(again().graph))
        try:
            return pointer_sites(one, two, others, inputs, _memory(), _host_memory())
        except Unexplained:
            if len(others) == _CAPTURES:
                raise
            litter += [bytearray(1000 * number) for number in range(1, 100)]  # so that not all is found where it was before


def _prove(captured: _Captured, pointers: Pointers, sets: Sequence[Sequence[torch.Tensor]], results: Copied) -> None:
    """Replay with inputs elsewhere, all that lay where others did before being garbage: results must be the same bytes."""
    expected = _replayed(captured, results)
    for _ in range(2):
        fresh = [copy_of(each) for each in sets[0]]
        for each in (*sets[0], *sets[1]):
            _spoil(each)
        pointers.set(fresh)
        found = _replayed(captured, results)
        if not all(torch.equal(one, other) for one, other in zip(expected, found, strict=True)):
            raise NotPatchable("it gives something else when its inputs lie elsewhere")
        sets = [fresh, sets[0]]


def _replayed(captured: _Captured, results: Copied) -> list[torch.Tensor]:
    """Replay, and copy the results as bytes, which tell one NaN from another."""
    device = torch.cuda.current_device()
    generator = torch.cuda.default_generators[device]
    before = generator.get_offset()
    captured.set_targets([torch.empty_like(each) for each in results(captured.outputs)])
    captured.graph.replay()
    if generator.get_offset() != before:
        generator.set_offset(before)
        raise NotPatchable("it draws random numbers")
    return [
        each.detach().contiguous().view(-1).view(torch.uint8).clone() for each in _tensors(captured.outputs) if each.numel()
    ]


def _spoil(tensor: torch.Tensor) -> None:
    if tensor.is_floating_point() or tensor.is_complex():
        tensor.fill_(float("nan"))
    else:  # a number that is valid where it is an index
        tensor.fill_(0 if tensor.any() else 1)


def _tensors(outputs: Any) -> list[torch.Tensor]:
    return [each for each in outputs if isinstance(each, torch.Tensor)]


def _lies_in(tensor: torch.Tensor, inputs: Sequence[torch.Tensor]) -> bool:
    return any(tensor.untyped_storage().data_ptr() == each.untyped_storage().data_ptr() for each in inputs)


def _range(tensor: torch.Tensor) -> Range:
    return Range(tensor.data_ptr(), tensor.data_ptr() + extent(tensor) * tensor.element_size())


def _memory() -> list[Range]:
    """Give what the allocator has from the device."""
    segments = torch.cuda.memory_snapshot()
    return sorted(Range(each["address"], each["address"] + each["total_size"]) for each in segments)


def _host_memory() -> list[Range]:
    """Give what this process may write to, as Linux tells."""
    maps = Path("/proc/self/maps")
    lines = maps.read_text().splitlines() if maps.exists() else ()
    found = [each.split() for each in lines]
    return [Range(*(int(end, 16) for end in words[0].split("-"))) for words in found if words[1].startswith("rw")]
